"""Real browsers, with pages of other origins."""
