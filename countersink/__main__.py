"""`python -m countersink`."""

from countersink.cli import main

if __name__ == "__main__":
    main()
