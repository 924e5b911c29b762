"""Fakes of the ports in memory. They pass the same contract suites as the adapters of the product."""
