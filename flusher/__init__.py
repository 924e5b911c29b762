"""Envelopes in, commits out."""
