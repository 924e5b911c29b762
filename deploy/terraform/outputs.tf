output "settings" {
  description = "The settings of all processes, besides COUNTERSINK_OVERLAY."
  value = {
    COUNTERSINK_BROKER    = "pubsub://${var.project}/${google_pubsub_topic.counts.name}?subscription=${google_pubsub_subscription.counts.name}"
    COUNTERSINK_STORE     = "datastore://${var.project}${var.database == "(default)" ? "" : "/${var.database}"}"
    COUNTERSINK_RETENTION = tostring(var.retention)
  }
}

output "overlay" {
  description = "The version of the secret that holds COUNTERSINK_OVERLAY, with Redis's password."
  value = {
    secret  = google_secret_manager_secret.overlay.secret_id
    version = google_secret_manager_secret_version.overlay.version
  }
}

output "accounts" {
  description = "The accounts of the processes."
  value       = { for name, account in google_service_account.of : name => account.email }
}

output "on_call" {
  description = "The channels of critical alerts."
  value       = concat([google_monitoring_notification_channel.mail["CRITICAL"].id], var.on_call_channels)
}

output "runbooks" {
  description = "What to do, by the name of the alert."
  value       = local.runbooks
}
