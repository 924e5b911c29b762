"""The words of the domain and its rules. Pure: no I/O, no event loop."""
