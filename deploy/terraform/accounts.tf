# An account for each kind of process, with the roles of the table in docs/google-cloud.md, and no others. `operator` is for
# the commands doctor, audit and dlq.
locals {
  topics        = { counts = google_pubsub_topic.counts.name, dead_letters = google_pubsub_topic.dead_letters.name, tasks = google_pubsub_topic.tasks.name }
  subscriptions = { counts = google_pubsub_subscription.counts.name, dead_letters = google_pubsub_subscription.dead_letters.name, tasks = google_pubsub_subscription.tasks.name }

  on_topics = {
    ingest   = { publisher = ["counts", "tasks"], viewer = ["counts", "tasks"] }
    flusher  = { publisher = ["dead_letters", "tasks"], viewer = ["counts", "dead_letters", "tasks"] }
    operator = { publisher = ["dead_letters", "tasks"], viewer = ["counts", "dead_letters", "tasks"] }
  }
  on_subscriptions = {
    ingest   = { viewer = ["counts"] }
    flusher  = { subscriber = ["counts", "tasks"], viewer = ["counts", "dead_letters", "tasks"] }
    operator = { subscriber = ["counts", "dead_letters", "tasks"], viewer = ["counts", "dead_letters", "tasks"] }
  }
  on_project = {
    ingest    = ["datastore.user"]
    flusher   = ["datastore.user"]
    operator  = ["datastore.user"]
    provision = ["pubsub.editor", "datastore.user", "datastore.indexAdmin"]
  }
}

resource "google_service_account" "of" {
  for_each = local.on_project

  account_id   = "countersink-${each.key}"
  display_name = "Countersink ${each.key}"
  depends_on   = [google_project_service.needed]
}

resource "google_pubsub_topic_iam_member" "may" {
  for_each = merge([for account, roles in local.on_topics : merge([for role, topics in roles : {
    for topic in topics : "${account} ${role} ${topic}" => { account = account, role = role, topic = topic }
  }]...)]...)

  topic  = local.topics[each.value.topic]
  role   = "roles/pubsub.${each.value.role}"
  member = google_service_account.of[each.value.account].member
}

resource "google_pubsub_subscription_iam_member" "may" {
  for_each = merge([for account, roles in local.on_subscriptions : merge([for role, subscriptions in roles : {
    for one in subscriptions : "${account} ${role} ${one}" => { account = account, role = role, subscription = one }
  }]...)]...)

  subscription = local.subscriptions[each.value.subscription]
  role         = "roles/pubsub.${each.value.role}"
  member       = google_service_account.of[each.value.account].member
}

resource "google_project_iam_member" "may" {
  for_each = merge([for account, roles in local.on_project : { for role in roles : "${account} ${role}" => { account = account, role = role } }]...)

  project = var.project
  role    = "roles/${each.value.role}"
  member  = google_service_account.of[each.value.account].member
}

# All processes read the URL of Redis.
resource "google_secret_manager_secret_iam_member" "reads_overlay" {
  for_each = google_service_account.of

  secret_id = google_secret_manager_secret.overlay.id
  role      = "roles/secretmanager.secretAccessor"
  member    = each.value.member
}

# On GKE, the Kubernetes service account of the same name acts as it, and KEDA asks for the metrics of the flushers.
resource "google_service_account_iam_member" "workload" {
  for_each = var.kubernetes_namespace == null ? {} : google_service_account.of

  service_account_id = each.value.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${var.project}.svc.id.goog[${var.kubernetes_namespace}/${each.key}]"
}

resource "google_project_iam_member" "keda" {
  count = var.kubernetes_namespace == null ? 0 : 1

  project = var.project
  role    = "roles/monitoring.viewer"
  member  = "serviceAccount:${var.project}.svc.id.goog[keda/keda-operator]"
}
