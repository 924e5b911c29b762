"""Other ways to count, run on this machine beside Countersink."""
