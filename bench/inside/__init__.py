"""Measurements from inside: kernels by themselves, and an engine in this very process.

What a client cannot see is measured here, so these modules import :mod:`pagedeck.engine` and :mod:`pagedeck.kernels`,
which the rest of :mod:`pagedeck.bench` does not. They need torch and transformers; neither sockets nor Qt.
"""
