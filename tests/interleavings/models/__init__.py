"""Small models of protocols, explored over all interleavings at small bounds."""
