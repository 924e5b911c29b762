# Everything on Google Cloud that Countersink needs besides its processes. docs/google-cloud.md explains each part.
terraform {
  required_version = ">= 1.9"
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
  for_each = toset(["datastore", "firestore", "monitoring", "pubsub", "redis"])

  service            = "${each.key}.googleapis.com"
  disable_on_destroy = false
}
