"""The batch timeline."""
