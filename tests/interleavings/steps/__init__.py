"""The whole path from an increment to an exact read."""
