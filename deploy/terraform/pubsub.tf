# The same topics and subscriptions, with the same settings, as `countersink provision` makes. A subscription that was
# deleted loses increments, so Terraform does not delete one.
locals {
  kept = "${var.retention}s"
}

resource "google_pubsub_topic" "counts" {
  name                       = var.topic
  message_retention_duration = local.kept # for a subscription that was deleted and made again
  deletion_policy            = "PREVENT"
  depends_on                 = [google_project_service.needed]
}

resource "google_pubsub_subscription" "counts" {
  name                       = "${var.topic}-flushers"
  topic                      = google_pubsub_topic.counts.id
  ack_deadline_seconds       = 60
  message_retention_duration = local.kept
  retain_acked_messages      = true # for a database that was put back to an earlier time
  deletion_policy            = "PREVENT"

  expiration_policy {
    ttl = "" # never, even if no flusher has run for a month
  }
}

resource "google_pubsub_topic" "dead_letters" {
  name                       = "${var.topic}-dead-letters"
  message_retention_duration = local.kept
  deletion_policy            = "PREVENT"
  depends_on                 = [google_project_service.needed]
}

resource "google_pubsub_subscription" "dead_letters" {
  name                       = "${var.topic}-flushers-dead-letters"
  topic                      = google_pubsub_topic.dead_letters.id
  ack_deadline_seconds       = 600
  message_retention_duration = local.kept
  deletion_policy            = "PREVENT"

  expiration_policy {
    ttl = ""
  }
}

resource "google_pubsub_topic" "tasks" {
  name            = "${var.topic}-tasks"
  deletion_policy = "PREVENT"
  depends_on      = [google_project_service.needed]
}

resource "google_pubsub_subscription" "tasks" {
  name                       = "${var.topic}-flushers-tasks"
  topic                      = google_pubsub_topic.tasks.id
  ack_deadline_seconds       = 60
  message_retention_duration = local.kept
  deletion_policy            = "PREVENT"

  expiration_policy {
    ttl = ""
  }
}
