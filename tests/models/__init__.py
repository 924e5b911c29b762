"""Small models of the protocol, explored over all interleavings."""
