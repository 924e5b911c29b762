"""`python -m countersink_server` is the command `countersink`."""

from countersink_server.cli import main

if __name__ == "__main__":
    main()
