"""How processes run: their sockets, logs, workers and signals."""
