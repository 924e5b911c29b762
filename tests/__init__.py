"""The tests: each package is one part, seen from its outside."""
