"""Breaks the guarantee on purpose, one behaviour at a time: a test has to notice each."""
