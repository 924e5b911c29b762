output "settings" {
  description = "The settings of ingests and flushers."
  sensitive   = true # Redis's password is in one of them
  value = {
    COUNTERSINK_BROKER    = "pubsub://${var.project}/${google_pubsub_topic.counts.name}?subscription=${google_pubsub_subscription.counts.name}"
    COUNTERSINK_STORE     = "datastore://${var.project}"
    COUNTERSINK_OVERLAY   = "redis://:${google_redis_instance.overlay.auth_string}@${google_redis_instance.overlay.host}:${google_redis_instance.overlay.port}"
    COUNTERSINK_RETENTION = tostring(var.retention)
  }
}

output "accounts" {
  description = "The accounts of the processes."
  value       = { for name, account in google_service_account.of : name => account.email }
}
