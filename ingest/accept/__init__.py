"""Turns batches into messages, and publishes them to the broker or keeps them in the spool."""
