# Everything that Countersink needs on Google Cloud when its processes run on GKE (../kubernetes/overlays/gke).
terraform {
  required_version = ">= 1.9"

  # `terraform init` names the bucket. Only operators may read it: the state has Redis's password.
  backend "gcs" {
    prefix = "countersink/gke"
  }

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.7"
    }
  }
}

provider "google" {
  project               = var.project
  region                = var.region
  billing_project       = var.project
  user_project_override = true # budgets need it
}

module "countersink" {
  source = "../terraform"

  project              = var.project
  region               = var.region
  network              = var.network
  location             = var.location
  database             = var.database
  redis_gb             = var.redis_gb
  on_call              = var.on_call
  tickets              = var.tickets
  on_call_channels     = var.on_call_channels
  budget               = var.budget
  scraped              = true
  kubernetes_namespace = "countersink"
}
