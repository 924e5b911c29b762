# What is accepted and not applied yet, for exact reads. It may fail: counting goes on, and reads are not exact meanwhile.
resource "google_redis_instance" "overlay" {
  name               = "${var.topic}-overlay"
  tier               = "STANDARD_HA"
  memory_size_gb     = var.redis_gb
  region             = var.region
  redis_version      = "REDIS_7_2"
  authorized_network = var.network
  connect_mode       = "PRIVATE_SERVICE_ACCESS"
  auth_enabled       = true

  redis_configs = {
    maxmemory-policy = "noeviction" # another one may drop increments, and Countersink does not use such a Redis
  }

  depends_on = [google_project_service.needed]
}
