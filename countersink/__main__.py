"""`python -m countersink` is the command `countersink`, if the distribution `countersink-server` is installed."""

import sys
from importlib import import_module
from importlib.util import find_spec

if __name__ == "__main__":
    if find_spec("countersink_server") is None:
        sys.exit("countersink: only the client is installed; the command is in the distribution countersink-server")
    import_module("countersink_server.__main__").main()
