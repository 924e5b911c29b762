"""What the core needs from the outside, as Protocols that adapters implement.

The docstrings are promises: tests/contracts has one suite per port, and every adapter passes it.
All methods raise `TransientError` when the outcome is unknown or a later try may succeed.
"""
