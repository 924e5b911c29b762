"""The front door of Countersink: the command line and the client."""

__version__ = "0.1.0"
