"""The engine as a process: sockets, checks at the edge, telemetry."""
