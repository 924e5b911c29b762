"""The files of the console: its page, scripts and styles. They are served as they are and hold no data."""
