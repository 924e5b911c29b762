"""Counts what senders of the StatsD protocol say."""
