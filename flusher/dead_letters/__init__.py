"""What was given up: opened, replayed, dropped."""
