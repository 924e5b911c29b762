"""How many processes a traffic needs, and what it costs on Google Cloud."""
