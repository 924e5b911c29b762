"""Proof by yourself: counts on a running service, and judges whether it keeps its promises."""
