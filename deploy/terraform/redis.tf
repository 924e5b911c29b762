# What is accepted and not applied yet, for exact reads. It may fail: counting continues, and reads are not exact meanwhile.
resource "google_redis_instance" "overlay" {
  name                    = "${var.topic}-overlay"
  tier                    = "STANDARD_HA"
  memory_size_gb          = var.redis_gb
  region                  = var.region
  redis_version           = "REDIS_7_2"
  authorized_network      = var.network
  auth_enabled            = true
  transit_encryption_mode = "SERVER_AUTHENTICATION"

  redis_configs = {
    maxmemory-policy = "noeviction" # another one may drop increments, and Countersink does not use such a Redis
  }

  depends_on = [google_project_service.needed]
}

# The URL with Redis's password and the certificates of the authority of this instance alone. Only a name that clients do not
# look at says which host it is, so they check the authority. (Terraform's state has the password, too: see docs/deploy.md.)
resource "google_secret_manager_secret" "overlay" {
  secret_id  = "${var.topic}-overlay"
  depends_on = [google_project_service.needed]

  replication {
    auto {}
  }
}

resource "google_secret_manager_secret_version" "overlay" {
  secret      = google_secret_manager_secret.overlay.id
  secret_data = "rediss://:${google_redis_instance.overlay.auth_string}@${google_redis_instance.overlay.host}:${google_redis_instance.overlay.port}?ssl_check_hostname=false&ssl_ca_data=${urlencode(join("\n", google_redis_instance.overlay.server_ca_certs[*].cert))}"

  lifecycle {
    create_before_destroy = true # processes that run name the old version, and start again with it
  }
}
