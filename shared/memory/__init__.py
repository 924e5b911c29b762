"""What lives in memory alone: the overlay of one process, and fakes of all ports, held to their contracts."""
