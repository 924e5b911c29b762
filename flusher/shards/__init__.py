"""How many shards a counter has, and which of them take the next sums."""
