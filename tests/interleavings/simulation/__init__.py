"""The whole path under one seeded scheduler with virtual time: a failing seed replays exactly."""
