"""Latency, throughput and the machine."""
