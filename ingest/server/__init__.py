"""Sockets, connections and their limits; which handler answers."""
