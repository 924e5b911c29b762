# Alerts by mail: those of deploy/prometheus/rules.yml where the metrics of the processes are collected, those that only
# Google's metrics can tell, and those of the platform (var.alerts).
locals {
  rules   = flatten(yamldecode(file("${path.module}/../prometheus/rules.yml")).groups[*].rules)
  records = { for rule in local.rules : rule.record => "(${trimspace(rule.expr)})" if can(rule.record) }

  # Cloud Monitoring has no recording rules here, so what they would record stands in the place of their names.
  tokens   = "countersink:[a-z0-9_:]+|[^c]+|c"
  expanded = { for name, expr in local.records : name => join("", [for token in regexall(local.tokens, expr) : lookup(local.records, token, token)]) }
  seconds  = { s = 1, m = 60, h = 3600 }

  # An alert brings its runbook, since a link to it would have to lead to a page that the reader may open.
  runbooks = { for section in split("\n## ", file("${path.module}/../../docs/runbooks.md")) : split("\n", section)[0] => section }

  # Those on metrics of machines (node_exporter) are for machines of your own.
  from_prometheus = { for rule in local.rules : rule.alert => {
    query    = join("", [for token in regexall(local.tokens, trimspace(rule.expr)) : lookup(local.expanded, token, token)])
    duration = "${try(tonumber(regex("^[0-9]+", rule.for)) * local.seconds[regex("[smh]$", rule.for)], 0)}s"
    severity = upper(rule.labels.severity)
    says     = rule.annotations.description
  } if can(rule.alert) && var.scraped && !strcontains(rule.expr, "node_") }

  # Where the processes are scraped, theirs takes the place of Google's of the same name, so only one that tells as much has it.
  from_google = {
    CountersinkDeadLettersWait = {
      query    = "pubsub_googleapis_com:subscription_num_undelivered_messages{subscription_id=\"${google_pubsub_subscription.dead_letters.name}\"} > 0"
      duration = "0s"
      severity = "CRITICAL"
      says     = "Messages became dead letters. They are not counted until they are replayed: countersink dlq list says why."
    }
    CountersinkDeadLettersExpire = {
      query    = "pubsub_googleapis_com:subscription_oldest_unacked_message_age{subscription_id=\"${google_pubsub_subscription.dead_letters.name}\"} > ${var.retention - 172800}"
      duration = "0s"
      severity = "CRITICAL"
      says     = "In less than two days, Pub/Sub deletes dead letters. Replay them: countersink dlq replay."
    }
    CountersinkNothingApplied = {
      query    = "pubsub_googleapis_com:subscription_oldest_unacked_message_age{subscription_id=\"${google_pubsub_subscription.counts.name}\"} > 600"
      duration = "300s"
      severity = "CRITICAL"
      says     = "Increments have waited for ten minutes. They are safe, but not applied. Check that flushers run."
    }
    CountersinkMessagesExpire = {
      query    = "pubsub_googleapis_com:subscription_oldest_unacked_message_age{subscription_id=\"${google_pubsub_subscription.counts.name}\"} > ${var.retention / 2}"
      duration = "0s"
      severity = "CRITICAL"
      says     = "Increments have waited for half of the time that Pub/Sub keeps them. Start flushers, or find out why they fail."
    }
    CountersinkRedisFull = {
      query    = "redis_googleapis_com:stats_memory_usage_ratio{instance_id=\"${google_redis_instance.overlay.id}\"} > 0.8"
      duration = "300s"
      severity = "WARNING"
      says     = "When Redis is full, reads are not exact. Look for a backlog, or give it more memory."
    }
  }
}

resource "google_monitoring_notification_channel" "mail" {
  for_each = { CRITICAL = var.on_call, WARNING = var.tickets }

  display_name = "Countersink ${lower(each.key)}"
  type         = "email"
  labels       = { email_address = each.value }
  depends_on   = [google_project_service.needed]
}

resource "google_monitoring_alert_policy" "of" {
  for_each = merge(local.from_google, local.from_prometheus, var.alerts)

  display_name          = each.key
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = concat([google_monitoring_notification_channel.mail[each.value.severity].id], each.value.severity == "CRITICAL" ? var.on_call_channels : [])

  conditions {
    display_name = each.key

    condition_prometheus_query_language {
      query                     = each.value.query
      duration                  = each.value.duration
      evaluation_interval       = "60s"
      disable_metric_validation = true # in a new project, no process has written a metric yet
    }
  }

  documentation {
    content   = "${each.value.says}\n\n## ${local.runbooks[each.key]}"
    mime_type = "text/markdown"
  }

  # Redis takes the longest. Before, the processes can't run, and CountersinkAbsent would wake somebody.
  depends_on = [google_project_service.needed, google_redis_instance.overlay]
}

# Spend. A budget belongs to the billing account, on which Terraform's account needs the role Billing Account Costs Manager.
resource "google_billing_budget" "spend" {
  count = var.budget == null ? 0 : 1

  billing_account = var.budget.billing_account
  display_name    = "Countersink"

  amount {
    specified_amount {
      units = tostring(var.budget.units)
    }
  }

  budget_filter {
    projects = ["projects/${var.budget.project_number}"]
  }

  dynamic "threshold_rules" {
    for_each = [0.5, 0.9, 1.0]
    content {
      threshold_percent = threshold_rules.value
    }
  }

  all_updates_rule {
    monitoring_notification_channels = [google_monitoring_notification_channel.mail["WARNING"].id]
  }

  depends_on = [google_project_service.needed]
}

resource "google_monitoring_dashboard" "countersink" {
  count = var.scraped ? 1 : 0

  dashboard_json = file("${path.module}/dashboard.json")
  depends_on     = [google_project_service.needed]
}
