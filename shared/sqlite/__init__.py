"""Broker, store and overlay in one SQLite file, shared by any number of processes of one machine."""
