"""What the core needs of the outside, as Protocols. Adapters fill them.

Each is held to its sentences by one contract suite (tests/contracts), which every adapter passes.
All methods raise `TransientError` when the outcome is unknown or a later try may succeed.
"""
