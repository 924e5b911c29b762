# The table of totals in BigQuery, kept by the feed: a topic, a subscription that writes to the table, and who may do what.
# See docs/feed.md. Apply it after ../cloudrun or ../gke, in the same project.
terraform {
  required_version = ">= 1.9"

  backend "gcs" { # `terraform init` names the bucket
    prefix = "countersink/bigquery"
  }

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.7"
    }
  }
}

provider "google" {
  project = var.project
  region  = var.region
}

resource "google_project_service" "needed" {
  for_each = toset(["bigquery", "pubsub"])

  service            = "${each.key}.googleapis.com"
  disable_on_destroy = false
}

resource "google_pubsub_topic" "feed" {
  name       = var.topic
  depends_on = [google_project_service.needed]
}

# One of the flushers reports.
resource "google_pubsub_topic_iam_member" "tells" {
  topic  = google_pubsub_topic.feed.name
  role   = "roles/pubsub.publisher"
  member = "serviceAccount:countersink-flusher@${var.project}.iam.gserviceaccount.com"
}

resource "google_bigquery_dataset" "counts" {
  dataset_id = var.dataset
  location   = coalesce(var.location, var.region)
  depends_on = [google_project_service.needed]
}

# BigQuery keeps the row with the greatest sequence of each counter: the messages say so (change data capture).
resource "google_bigquery_table" "totals" {
  dataset_id    = google_bigquery_dataset.counts.dataset_id
  table_id      = "totals"
  clustering    = ["counter"]
  max_staleness = "0-0 0 0:10:0" # older changes are merged when somebody asks
  schema = jsonencode([
    { name = "counter", type = "STRING", mode = "REQUIRED" },
    { name = "value", type = "INTEGER", mode = "NULLABLE" },
    { name = "as_of", type = "TIMESTAMP", mode = "NULLABLE" },
    { name = "sequence", type = "INTEGER", mode = "NULLABLE" },
  ])

  table_constraints {
    primary_key {
      columns = ["counter"]
    }
  }
}

# Pub/Sub itself writes to the table.
resource "google_bigquery_dataset_iam_member" "writes" {
  dataset_id = google_bigquery_dataset.counts.dataset_id
  role       = "roles/bigquery.dataEditor"
  member     = "serviceAccount:service-${var.project_number}@gcp-sa-pubsub.iam.gserviceaccount.com"
}

resource "google_pubsub_subscription" "to_bigquery" {
  name       = "${var.topic}-bigquery"
  topic      = google_pubsub_topic.feed.id
  filter     = "attributes.\"ce-type\" = \"countersink.counter.changed\""
  depends_on = [google_bigquery_dataset_iam_member.writes]

  bigquery_config {
    table            = "${var.project}.${google_bigquery_dataset.counts.dataset_id}.${google_bigquery_table.totals.table_id}"
    use_table_schema = true
  }

  expiration_policy {
    ttl = "" # never
  }

  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }
}

output "settings" {
  description = "The settings of all flushers. Choose the prefixes and intervals."
  value = {
    COUNTERSINK_FEED    = "page:=1m"
    COUNTERSINK_FEED_TO = "pubsub://${var.project}/${google_pubsub_topic.feed.name}"
  }
}
