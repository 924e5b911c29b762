"""Jobs: changes that visit every counter under a prefix."""
