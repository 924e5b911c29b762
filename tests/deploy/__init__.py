"""Tests of what is in `deploy`: real checkers read it, and what can run here runs."""
