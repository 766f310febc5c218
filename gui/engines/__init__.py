"""Running engines: their list, starting one, and its process."""
