"""HTTP in, envelopes out; and the reads."""
