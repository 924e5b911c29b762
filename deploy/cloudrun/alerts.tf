# What Cloud Run's own metrics tell better than those that the processes push.
locals {
  service = "monitored_resource=\"cloud_run_revision\",service_name=\"countersink-ingest\""
  pool    = "monitored_resource=\"cloud_run_worker_pool\",worker_pool_name=\"countersink-flusher\""
  errors  = "run_googleapis_com:request_count{${local.service},response_code_class=\"5xx\"}"
  all     = "run_googleapis_com:request_count{${local.service}}"
  starts  = "run_googleapis_com:container_startup_latencies_count"

  alerts = {
    CountersinkErrors = {
      query    = "sum(rate(${local.errors}[5m])) > 0.0144 * sum(rate(${local.all}[5m])) and sum(rate(${local.errors}[1h])) > 0.0144 * sum(rate(${local.all}[1h])) and sum(increase(${local.errors}[1h])) > 10"
      duration = "0s"
      severity = "CRITICAL"
      says     = "More than 1.4 % of requests are answered 5xx."
    }
    CountersinkSlow = {
      query    = "histogram_quantile(0.5, sum by (le) (rate(run_googleapis_com:request_latencies_bucket{${local.service}}[5m]))) > 2000"
      duration = "600s"
      severity = "WARNING"
      says     = "Half of the requests take more than two seconds. Requests with ?wait=applied are among them."
    }
    CountersinkAbsent = {
      query    = "absent(run_googleapis_com:container_instance_count{${local.service}} > 0) or absent(increase(run_googleapis_com:container_billable_instance_time{${local.pool}}[10m]) > 0) or absent(countersink_start_time_seconds)"
      duration = "600s"
      severity = "CRITICAL"
      says     = "There is no instance of ingest, or none of the flusher, or their metrics do not come: the log says why."
    }
    CountersinkMostInstances = {
      query    = "sum(run_googleapis_com:container_instance_count{${local.service}}) >= ${var.most_ingests}"
      duration = "600s"
      severity = "WARNING"
      says     = "Ingest runs as many instances as it may, so requests may wait, or be answered 429 by Cloud Run."
    }
    CountersinkRestarts = {
      query    = "sum(increase(${local.starts}{${local.pool}}[30m])) > 30 or sum(increase(${local.starts}{${local.service}}[30m])) > 30"
      duration = "0s"
      severity = "WARNING"
      says     = "Flushers or ingests are started again and again. The last line of a process's log says why it ended."
    }
  }
}

# From outside, as clients come: it asks for the name, the certificate and Google's front end, too. It needs no key.
resource "google_monitoring_uptime_check_config" "outside" {
  display_name = "Countersink"
  timeout      = "10s"
  period       = "60s"

  http_check {
    path         = "/version"
    port         = 443
    use_ssl      = true
    validate_ssl = true
  }

  monitored_resource {
    type   = "uptime_url"
    labels = { project_id = var.project, host = trimprefix(google_cloud_run_v2_service.ingest.uri, "https://") }
  }
}

resource "google_monitoring_alert_policy" "outside" {
  display_name          = "CountersinkUnreachable"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = module.countersink.on_call

  conditions {
    display_name = "CountersinkUnreachable"

    condition_threshold {
      filter          = "metric.type=\"monitoring.googleapis.com/uptime_check/check_passed\" AND metric.labels.check_id=\"${google_monitoring_uptime_check_config.outside.uptime_check_id}\" AND resource.type=\"uptime_url\""
      comparison      = "COMPARISON_GT"
      threshold_value = 1 # more than one place from which Google asks
      duration        = "120s"

      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_NEXT_OLDER"
        cross_series_reducer = "REDUCE_COUNT_FALSE"
        group_by_fields      = ["resource.label.host"]
      }
    }
  }

  documentation {
    content   = "Clients can't reach ingest.\n\n## ${module.countersink.runbooks["CountersinkUnreachable"]}"
    mime_type = "text/markdown"
  }
}
