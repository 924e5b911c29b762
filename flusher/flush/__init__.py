"""From messages to commits: pull, gather, commit, acknowledge."""
