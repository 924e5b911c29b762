"""Jobs: what they do to counters, whoever is killed meanwhile."""
