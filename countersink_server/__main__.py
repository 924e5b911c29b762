"""`python -m countersink_server` is the command `countersink`."""

from countersink_server.cli.main import main

if __name__ == "__main__":
    main()
