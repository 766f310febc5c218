"""Engines in processes of their own that load a model for ever: all of an engine's manners within half a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PROGRAM = """
import itertools, json, logging, sys, threading
from pagedeck.engine.config import EngineConfig
from pagedeck.engine.serving import service

def assemble(config, report):
    report("Looking for the model", None)
    log = logging.getLogger("pagedeck.engine.flood")
    for number in itertools.count() if flood else ():
        log.warning("Line %d of a flood", number)
    threading.Event().wait()

service._assemble = assemble
what = json.loads(sys.argv[1])
flood = what.pop("flood", False)
sys.exit(service.serve(EngineConfig(model="/models/tiny"), owned=True, **what))
"""


def command(name: str, **options: Any) -> list[str]:
    """``flood``: it logs as fast as it can. Other options are those of ``serve``."""
    return [sys.executable, "-c", PROGRAM, json.dumps({"name": name} | options)]


@contextmanager
def loading_engine(name: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """One that ends with the block. Where its file appears, ``PAGEDECK_RUNTIME`` says."""
    process = subprocess.Popen(
        command(name, **options), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ.copy()
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
