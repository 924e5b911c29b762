# Its TTL policies are made by `countersink provision`, which knows the kinds and checks that they work.
resource "google_firestore_database" "counts" {
  name                              = "(default)"
  location_id                       = coalesce(var.location, var.region)
  type                              = "DATASTORE_MODE"
  delete_protection_state           = "DELETE_PROTECTION_ENABLED"
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_ENABLED"
  deletion_policy                   = "ABANDON"
  depends_on                        = [google_project_service.needed]
}

# Of the database in use, which is another one after a restore.
resource "google_firestore_backup_schedule" "daily" {
  database   = var.database
  retention  = "1209600s"
  depends_on = [google_firestore_database.counts]

  daily_recurrence {}
}
