"""One room of the source at a time, without a network or other processes."""
