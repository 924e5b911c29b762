"""Settings, the URLs in them, and what is found wrong with a set-up."""
