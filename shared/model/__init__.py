"""The words and rules of the domain. Pure: no I/O, no event loop."""
