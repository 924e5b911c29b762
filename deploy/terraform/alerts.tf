# The alerts of deploy/prometheus/rules.yml, evaluated by Cloud Monitoring, and three that only Google's metrics can tell.
locals {
  rules   = flatten(yamldecode(file("${path.module}/../prometheus/rules.yml")).groups[*].rules)
  records = { for rule in local.rules : rule.record => "(${trimspace(rule.expr)})" if can(rule.record) }

  # Cloud Monitoring has no recording rules here, so what they would record stands in the place of their names.
  tokens   = "countersink:[a-z0-9_:]+|[^c]+|c"
  expanded = { for name, expr in local.records : name => join("", [for token in regexall(local.tokens, expr) : lookup(local.records, token, token)]) }
  seconds  = { s = 1, m = 60, h = 3600 }

  from_prometheus = { for rule in local.rules : rule.alert => {
    query    = join("", [for token in regexall(local.tokens, trimspace(rule.expr)) : lookup(local.expanded, token, token)])
    duration = "${try(tonumber(regex("^[0-9]+", rule.for)) * local.seconds[regex("[smh]$", rule.for)], 0)}s"
    severity = upper(rule.labels.severity)
    says     = "${rule.annotations.description}\n\nSee ${rule.annotations.runbook}."
  } if can(rule.alert) }

  from_google = {
    CountersinkDeadLettersExpire = {
      query    = "pubsub_googleapis_com:subscription_oldest_unacked_message_age{subscription_id=\"${google_pubsub_subscription.dead_letters.name}\"} > ${var.retention - 172800}"
      duration = "0s"
      severity = "CRITICAL"
      says     = "In less than two days, Pub/Sub deletes dead letters. Replay them: countersink dlq replay.\n\nSee docs/runbooks.md#countersinkdeadlettersexpire."
    }
    CountersinkMessagesExpire = {
      query    = "pubsub_googleapis_com:subscription_oldest_unacked_message_age{subscription_id=\"${google_pubsub_subscription.counts.name}\"} > ${var.retention / 2}"
      duration = "0s"
      severity = "CRITICAL"
      says     = "Increments have waited for half of the time that Pub/Sub keeps them. Start flushers, or find out why they fail.\n\nSee docs/runbooks.md#countersinkmessagesexpire."
    }
    CountersinkRedisFull = {
      query    = "redis_googleapis_com:stats_memory_usage_ratio{instance_id=\"${google_redis_instance.overlay.id}\"} > 0.8"
      duration = "300s"
      severity = "WARNING"
      says     = "When Redis is full, reads are not exact. Look for a backlog, or give it more memory.\n\nSee docs/runbooks.md#countersinkredisfull."
    }
  }
}

resource "google_monitoring_alert_policy" "of" {
  for_each = merge(local.from_prometheus, local.from_google)

  display_name          = each.key
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = var.notification_channels

  conditions {
    display_name = each.key

    condition_prometheus_query_language {
      query               = each.value.query
      duration            = each.value.duration
      evaluation_interval = "60s"
    }
  }

  documentation {
    content   = each.value.says
    mime_type = "text/markdown"
  }

  depends_on = [google_project_service.needed]
}

resource "google_monitoring_dashboard" "countersink" {
  dashboard_json = file("${path.module}/dashboard.json")
  depends_on     = [google_project_service.needed]
}
