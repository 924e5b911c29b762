"""A fleet of real processes, in disorder that Hypothesis draws."""
