# Countersink on Cloud Run: ingest as a service, flushers as a worker pool, and jobs that provision and for operators. It
# also makes all that is in ../terraform.
terraform {
  required_version = ">= 1.9"

  # `terraform init` names the bucket. Only operators may read it: the state has Redis's password.
  backend "gcs" {
    prefix = "countersink/cloudrun"
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

  project          = var.project
  region           = var.region
  network          = var.network
  location         = var.location
  database         = var.database
  redis_gb         = var.redis_gb
  on_call          = var.on_call
  tickets          = var.tickets
  on_call_channels = var.on_call_channels
  budget           = var.budget
  alerts           = local.alerts
  scraped          = true # the processes push their metrics; Google's own tell more of instances and requests (alerts.tf)
}

locals {
  own = {
    COUNTERSINK_DRAIN_TIMEOUT   = "4"    # an ingest may take five seconds more, and Cloud Run kills it after ten
    COUNTERSINK_MAX_CONNECTIONS = "1100" # requests and probes; with the default, ingest could take more than its memory
    COUNTERSINK_SPOOL           = "off"  # the disk does not outlive an instance

    # Nothing can scrape an instance, so each process pushes its metrics: docs/metrics.md.
    OTEL_EXPORTER_OTLP_METRICS_ENDPOINT = "https://telemetry.googleapis.com/v1/metrics"
    OTEL_RESOURCE_ATTRIBUTES            = "gcp.project_id=${var.project},location=${var.region}"
  }
  settings = merge(module.countersink.settings, local.own)
  keys = {
    COUNTERSINK_KEYS_FILE     = "/keys/keys.json"
    COUNTERSINK_KEYS_INTERVAL = "60" # each reading asks Secret Manager, which Google bills
    COUNTERSINK_AUDIENCE      = join(",", var.audiences)
  }
  behind = {
    # Google's front end, and its load balancers.
    COUNTERSINK_TRUSTED_PROXIES = join(",", concat(["169.254.0.0/16", "35.191.0.0/16", "130.211.0.0/22"], var.proxies))
  }
}

resource "google_project_service" "run" {
  service            = "run.googleapis.com"
  disable_on_destroy = false
}

resource "google_project_service" "telemetry" {
  service            = "telemetry.googleapis.com"
  disable_on_destroy = false
}

resource "google_project_iam_member" "pushes_metrics" {
  for_each = toset(["flusher", "ingest"])

  project = var.project
  role    = "roles/monitoring.metricWriter"
  member  = "serviceAccount:${module.countersink.accounts[each.key]}"
}

# The keys file, which `countersink keys new` makes, is in this secret.
resource "google_secret_manager_secret_iam_member" "reads_keys" {
  for_each = toset(["flusher", "ingest"])

  secret_id = var.keys_secret
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${module.countersink.accounts[each.key]}"
}

resource "google_cloud_run_v2_service" "ingest" {
  name                 = "countersink-ingest"
  location             = var.region
  ingress              = "INGRESS_TRAFFIC_ALL"
  invoker_iam_disabled = true  # Countersink checks its own keys
  deletion_protection  = false # it holds no data, and else a first apply that fails can't be repeated

  template {
    service_account                  = module.countersink.accounts["ingest"]
    timeout                          = "310s" # the longest ?wait=applied, and a little more
    max_instance_request_concurrency = 1000

    scaling {
      min_instance_count = 1
      max_instance_count = var.most_ingests
    }

    vpc_access {
      egress = "PRIVATE_RANGES_ONLY"

      network_interfaces {
        network    = var.network
        subnetwork = var.subnetwork
      }
    }

    containers {
      image = var.image
      args  = ["ingest", "--host", "0.0.0.0", "--port", "8080"]

      ports {
        container_port = 8080
      }

      resources {
        limits   = { cpu = "1", memory = "1Gi" } # docs/hardening.md says how the settings bound the memory
        cpu_idle = false                         # it publishes between requests, too
      }

      dynamic "env" {
        for_each = merge(local.settings, local.keys, local.behind)
        content {
          name  = env.key
          value = env.value
        }
      }

      env {
        name = "COUNTERSINK_OVERLAY"

        value_source {
          secret_key_ref {
            secret  = module.countersink.overlay.secret
            version = module.countersink.overlay.version
          }
        }
      }

      volume_mounts {
        name       = "keys"
        mount_path = "/keys"
      }

      startup_probe {
        period_seconds    = 2
        timeout_seconds   = 2
        failure_threshold = 60

        http_get {
          path = "/readyz"
          port = 8080
        }
      }

      liveness_probe {
        period_seconds    = 10
        timeout_seconds   = 5
        failure_threshold = 6

        http_get {
          path = "/healthz"
          port = 8080
        }
      }
    }

    volumes {
      name = "keys"

      secret {
        secret       = var.keys_secret
        default_mode = 292 # 0444: the file belongs to root, and Countersink runs as another user, the only one there is

        items {
          version = "latest"
          path    = "keys.json"
        }
      }
    }
  }

  # Flushers are replaced before ingests.
  depends_on = [google_cloud_run_v2_worker_pool.flusher, google_secret_manager_secret_iam_member.reads_keys]
}

# It answers no requests, so nothing scales it by itself. crema.yaml does, as a preview of Google's.
resource "google_cloud_run_v2_worker_pool" "flusher" {
  name                = "countersink-flusher"
  location            = var.region
  deletion_protection = false # as above

  scaling {
    manual_instance_count = 2 # at the beginning
  }

  template {
    service_account = module.countersink.accounts["flusher"]

    vpc_access {
      egress = "PRIVATE_RANGES_ONLY"

      network_interfaces {
        network    = var.network
        subnetwork = var.subnetwork
      }
    }

    containers {
      image = var.image
      args  = ["flusher", "--host", "0.0.0.0", "--port", "8080"] # for the probes

      resources {
        limits = { cpu = "1", memory = "1Gi" }
      }

      startup_probe {
        period_seconds    = 2
        timeout_seconds   = 2
        failure_threshold = 60

        http_get {
          path = "/healthz"
          port = 8080
        }
      }

      liveness_probe {
        period_seconds    = 10
        timeout_seconds   = 5
        failure_threshold = 6

        http_get {
          path = "/healthz"
          port = 8080
        }
      }

      dynamic "env" {
        for_each = merge(local.settings, local.keys)
        content {
          name  = env.key
          value = env.value
        }
      }

      env {
        name = "COUNTERSINK_OVERLAY"

        value_source {
          secret_key_ref {
            secret  = module.countersink.overlay.secret
            version = module.countersink.overlay.version
          }
        }
      }

      volume_mounts {
        name       = "keys"
        mount_path = "/keys"
      }
    }

    volumes {
      name = "keys"

      secret {
        secret       = var.keys_secret
        default_mode = 292 # 0444: the file belongs to root, and Countersink runs as another user, the only one there is

        items {
          version = "latest"
          path    = "keys.json"
        }
      }
    }
  }

  # Whoever scales it decides how many there are: an operator or crema.yaml.
  lifecycle {
    ignore_changes = [scaling[0].manual_instance_count]
  }

  depends_on = [google_project_service.run, google_secret_manager_secret_iam_member.reads_keys, module.countersink]
}

# `operator` is for the commands doctor, audit and dlq: docs/runbooks.md says how to run them.
resource "google_cloud_run_v2_job" "of" {
  for_each = { provision = ["provision"], operator = ["doctor"] }

  name                = "countersink-${each.key}"
  location            = var.region
  deletion_protection = false # as above

  template {
    template {
      service_account = module.countersink.accounts[each.key]
      timeout         = "3600s"
      max_retries     = 0

      vpc_access {
        egress = "PRIVATE_RANGES_ONLY"

        network_interfaces {
          network    = var.network
          subnetwork = var.subnetwork
        }
      }

      containers {
        image = var.image
        args  = each.value

        dynamic "env" {
          for_each = local.settings
          content {
            name  = env.key
            value = env.value
          }
        }

        env {
          name = "COUNTERSINK_OVERLAY"

          value_source {
            secret_key_ref {
              secret  = module.countersink.overlay.secret
              version = module.countersink.overlay.version
            }
          }
        }
      }
    }
  }

  depends_on = [google_project_service.run, module.countersink]
}
