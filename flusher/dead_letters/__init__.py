"""Opens, replays and drops dead letters."""
