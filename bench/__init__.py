"""Measures Countersink against bare references, in the same run: `python -m bench`."""
