output "url" {
  description = "Where to send increments."
  value       = google_cloud_run_v2_service.ingest.uri
}
