"""Workloads, baselines, reports. Drives engines through :mod:`pagedeck.ipc` like any client."""
