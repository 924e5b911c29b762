"""Builders that tests share: what a process is made of, on adapters in memory unless a test brings others."""
