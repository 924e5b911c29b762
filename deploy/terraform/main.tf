# Everything on Google Cloud that Countersink needs besides its processes: a module that ../cloudrun and ../gke use.
# docs/google-cloud.md explains each part.
terraform {
  required_version = ">= 1.9"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 8.7"
    }
  }
}

# A new project has none of them. Everything else waits until they are on.
resource "google_project_service" "needed" {
  for_each = toset(concat(["cloudresourcemanager", "compute", "datastore", "firestore", "iam", "monitoring", "pubsub", "redis", "secretmanager"], var.budget == null ? [] : ["billingbudgets"]))

  service            = "${each.key}.googleapis.com"
  disable_on_destroy = false
}
