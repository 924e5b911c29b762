"""The commands: one file for each command or family."""
