"""``pagedeck trace``: write down what is asked of a running engine, without any text, as a load to be repeated."""

from __future__ import annotations

import time
from pathlib import Path

from ..ipc.client import Client, EngineError
from ..ipc.telemetry import TOPIC_EVENT, Event
from ..ipc.trace import line_of, write_line
from ..ipc.vocabulary import Refused
from .terminal import Progress

LOOK_S = 0.5


def trace(engine: str | None, file: str, *, minutes: float | None) -> int:
    """Until Ctrl-C, for so many ``minutes``, or until the engine ends. A request is written when it has finished."""
    path = Path(file)
    if minutes is not None and not 0 < minutes <= 100_000:
        raise Refused.value("minutes", minutes, "a number above 0, up to 100,000")
    if path.exists():
        raise Refused(f"{path} exists already; name another file, or remove it.", field="file")
    end = None if minutes is None else time.monotonic() + 60 * minutes
    written = 0
    try:
        with (
            Client(engine) as client,
            path.open("wb", buffering=0) as out,
            client.subscribe([TOPIC_EVENT]) as events,
            Progress() as progress,
        ):
            while end is None or time.monotonic() < end:
                progress(f"{written:,} requests in {path}; Ctrl-C ends it", None)
                received = events.receive(timeout=LOOK_S)
                line = line_of(received[2]) if received and isinstance(received[2], Event) else None
                if line is not None:
                    write_line(out, line)
                    written += 1
                elif received is None:
                    client.status()  # raises when the engine is gone
    except KeyboardInterrupt:
        pass
    except EngineError as error:
        print(error)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}.", field="file") from error
    print(f"{written:,} requests in {path}. `pagedeck bench run --trace {path}` repeats them.")
    return 0
