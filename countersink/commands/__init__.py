"""The commands, one file each or one for a family."""
