"""What the service answers: `routes.py` is the table, and each other file has the handlers of some rows."""
