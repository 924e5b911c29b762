"""Fakes of every port, in memory: for tests, and to see what an adapter must do. They pass the same contract suites."""
