"""Reports to others which counters changed, and which thresholds they reached."""
