"""On PYTHONPATH while a mutation is tested, so that each process of the test applies it."""
