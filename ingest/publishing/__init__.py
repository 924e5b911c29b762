"""From batches to messages on the broker, or in the spool."""
