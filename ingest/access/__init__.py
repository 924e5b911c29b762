"""Who sends."""
