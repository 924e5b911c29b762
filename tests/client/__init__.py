"""The Python client, against a service and against servers that misbehave."""
