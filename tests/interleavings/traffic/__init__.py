"""Traffic of all kinds, drawn by chance, on one service."""
