"""How to run Countersink on a machine; not in the wheel."""
