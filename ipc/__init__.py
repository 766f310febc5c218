"""The wire: messages, sockets, keys, clients. Knows no torch and no Qt."""
