"""The pure core, and the parts of the SQLite adapter that no port shows."""
