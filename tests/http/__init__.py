"""The HTTP interface, as a stranger meets it who has only the contract."""
