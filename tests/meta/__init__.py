"""Rules about the checkout itself. Each is a function that lists what breaks it, and is shown something that does."""
