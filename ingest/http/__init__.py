"""Requests, bodies, answers and problems, for all routes."""
