"""The engine's core against a device of plain numbers."""

from __future__ import annotations

from .harness import expected, make_engine, output, run, submit


def test_one_request_gives_the_tokens_of_the_model() -> None:
    engine = make_engine()
    request = submit(engine, "a", list(range(20)), 10)
    run(engine)
    assert output(request) == expected(request)
