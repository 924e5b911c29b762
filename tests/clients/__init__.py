"""Clients in all languages: the scenarios of clients/conformance, and the packages as they are installed."""
