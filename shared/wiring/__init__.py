"""Settings in, ports out: the only room that names adapters."""
