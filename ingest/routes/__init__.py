"""The handlers of the routes."""
