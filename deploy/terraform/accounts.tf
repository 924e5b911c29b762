# An account for each kind of process, with the roles of the table in docs/google-cloud.md, and no others.
locals {
  topics = {
    "ingest publishes increments" = { account = "ingest", role = "publisher", topic = google_pubsub_topic.counts.name }
    "ingest starts jobs"          = { account = "ingest", role = "publisher", topic = google_pubsub_topic.tasks.name }
    "ingest looks at increments"  = { account = "ingest", role = "viewer", topic = google_pubsub_topic.counts.name }
    "ingest looks at jobs"        = { account = "ingest", role = "viewer", topic = google_pubsub_topic.tasks.name }
    "flusher buries messages"     = { account = "flusher", role = "publisher", topic = google_pubsub_topic.dead_letters.name }
    "flusher goes on with jobs"   = { account = "flusher", role = "publisher", topic = google_pubsub_topic.tasks.name }
    "flusher looks at increments" = { account = "flusher", role = "viewer", topic = google_pubsub_topic.counts.name }
    "flusher looks at the dead"   = { account = "flusher", role = "viewer", topic = google_pubsub_topic.dead_letters.name }
    "flusher looks at jobs"       = { account = "flusher", role = "viewer", topic = google_pubsub_topic.tasks.name }
  }
  subscriptions = {
    "ingest looks at increments"  = { account = "ingest", role = "viewer", subscription = google_pubsub_subscription.counts.name }
    "flusher takes increments"    = { account = "flusher", role = "subscriber", subscription = google_pubsub_subscription.counts.name }
    "flusher takes jobs"          = { account = "flusher", role = "subscriber", subscription = google_pubsub_subscription.tasks.name }
    "flusher looks at increments" = { account = "flusher", role = "viewer", subscription = google_pubsub_subscription.counts.name }
    "flusher looks at the dead"   = { account = "flusher", role = "viewer", subscription = google_pubsub_subscription.dead_letters.name }
    "flusher looks at jobs"       = { account = "flusher", role = "viewer", subscription = google_pubsub_subscription.tasks.name }
  }
  project = {
    "ingest reads"             = { account = "ingest", role = "datastore.user" }
    "flusher writes"           = { account = "flusher", role = "datastore.user" }
    "provision makes topics"   = { account = "provision", role = "pubsub.editor" }
    "provision makes policies" = { account = "provision", role = "datastore.indexAdmin" }
  }
}

resource "google_service_account" "of" {
  for_each = toset(["ingest", "flusher", "provision"])

  account_id   = "countersink-${each.key}"
  display_name = "Countersink ${each.key}"
}

resource "google_pubsub_topic_iam_member" "may" {
  for_each = local.topics

  topic  = each.value.topic
  role   = "roles/pubsub.${each.value.role}"
  member = google_service_account.of[each.value.account].member
}

resource "google_pubsub_subscription_iam_member" "may" {
  for_each = local.subscriptions

  subscription = each.value.subscription
  role         = "roles/pubsub.${each.value.role}"
  member       = google_service_account.of[each.value.account].member
}

resource "google_project_iam_member" "may" {
  for_each = local.project

  project = var.project
  role    = "roles/${each.value.role}"
  member  = google_service_account.of[each.value.account].member
}

# On GKE, the Kubernetes service account of the same name acts as it.
resource "google_service_account_iam_member" "workload" {
  for_each = var.kubernetes_namespace == null ? {} : google_service_account.of

  service_account_id = each.value.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${var.project}.svc.id.goog[${var.kubernetes_namespace}/${each.key}]"
}
