"""Sockets, connections and their limits, and which handler answers a request."""
