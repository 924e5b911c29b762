"""The distribution `countersink-server`: the command line, and how the processes of the service start and stop."""
