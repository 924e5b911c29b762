"""Tests of what is told to others."""
