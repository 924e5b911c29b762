"""The overlay of a fleet, in Redis or Valkey."""
