"""The table of requests, and one of them in full."""
