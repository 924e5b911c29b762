"""The broker on Pub/Sub."""
