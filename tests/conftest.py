"""Defaults that every test runs under: offscreen Qt, and a passive OpenMP so that processes can share the cores."""

from __future__ import annotations

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
