"""What every process needs while it runs: clocks, ids, retries, metrics."""
