"""What every adapter of a port is held to. An adapter's tests inherit the suites and say how it is made."""
