"""Plans of traffic: against the benchmarks, and against a simulation."""
