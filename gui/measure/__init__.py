"""Benchmarks and the tuner in the window."""
