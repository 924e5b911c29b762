"""Many things at once, in orders that are enumerated, drawn from a seed, or written down step by step."""
