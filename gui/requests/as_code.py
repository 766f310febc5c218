"""A request as a program that makes it again. No Qt."""

from __future__ import annotations

import dataclasses

from ...ipc.protocol import RequestDetail
from ...ipc.vocabulary import PRIORITIES, SamplingParams

_PROGRAM = """\
import pagedeck

with pagedeck.connect({name}) as engine:
    stream = engine.submit(
{arguments}
    )
    for tokens in stream:
        print(tokens.text, end="", flush=True)
"""


def as_code(detail: RequestDetail, engine: str) -> str:
    """Python source that submits the request of ``detail``, whose ``row`` is known, to the engine of this name.

    What is as it is by default is left out. The prompt is its text, in which a chat's turns stand as the model's
    template wrote them.
    """
    row = detail.row
    assert row is not None
    arguments = [repr(detail.prompt_text)]
    if row.priority != PRIORITIES["normal"]:
        names = {value: name for name, value in PRIORITIES.items()}
        arguments.append(f"priority={names.get(row.priority, row.priority)!r}")
    sampling = detail.sampling or SamplingParams(max_tokens=row.max_tokens, n=row.samples)
    plain = SamplingParams()
    for field in dataclasses.fields(SamplingParams):
        value = getattr(sampling, field.name)
        if value != getattr(plain, field.name):
            arguments.append(f"{field.name}={value!r}")
    lines = "\n".join(f"        {argument}," for argument in arguments)
    return _PROGRAM.format(name=repr(engine) if engine else "", arguments=lines)
