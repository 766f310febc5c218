"""Models with sliding windows on real tensors: the tokens of transformers, in no more blocks than the windows take."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
import torch
from pagedeck.engine.cache.cache_groups import CacheGroups
from pagedeck.engine.cache.windowed_cache import WindowedCache, window_blocks
from pagedeck.engine.core import Engine
from pagedeck.engine.model.attention import ATTENTION_NAME
from pagedeck.engine.model.runner import ModelRunner
from pagedeck.engine.reconfigure import reconfigure
from pagedeck.engine.request import Request
from pagedeck.ipc.vocabulary import RequestState
from pagedeck.kernels import ops_for
from pagedeck.kernels.reference import ReferenceOps

from .deferred import DeferredRunner
from .harness import CrampedRunner, model_engine, output, run, step, submit
from .tiny_models import VOCABULARY, tiny_model

#: Every layer slides in the first, two of three in the others.
KINDS = ["mistral", "gemma2", "gemma3", "gpt_oss"]
WINDOW = {"mistral": 11, "gemma2": 7, "gemma3": 7, "gpt_oss": 7}
OUTPUT = 40


@cache
def reference(kind: str) -> Any:
    return tiny_model(kind, "eager")


@cache
def model(kind: str) -> Any:
    return tiny_model(kind, ATTENTION_NAME)


@cache
def generated(kind: str, prompt: tuple[int, ...]) -> list[int]:
    ids = torch.tensor([prompt])
    out = reference(kind).generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=OUTPUT, do_sample=False, use_cache=False
    )
    return out[0, len(prompt) :].tolist()


@cache
def prompts() -> list[list[int]]:
    """Of up to many windows; some begin as others do."""
    choose = random.Random(7)
    made = [[choose.randrange(VOCABULARY) for _ in range(length)] for length in (1, 6, 7, 8, 33, 64, 90)]
    return [*made, [*made[-1][:48], 5, 6, 7], [*made[-1][:24], 8], list(made[5])]


def engine_of(kind: str, device: type[ModelRunner] = CrampedRunner, **more: Any) -> Engine:
    return model_engine(model(kind), kind=device, context_length=256, **{"token_budget": 23} | more)


def assert_generated(kind: str, request: Request, index: int = 0) -> None:
    assert request.state is RequestState.FINISHED, request.error
    assert output(request, index) == generated(kind, tuple(request.prompt))


def assert_within_windows(engine: Engine) -> None:
    """No sequence holds more of a window's pool than the window takes, and what a step wrote."""
    size = engine.cache.block_size
    for group in engine.cache.groups:
        for table in group.tables.values() if isinstance(group, WindowedCache) else ():
            ahead = max(1, table.count * size - table.computed)
            assert len(table.kept) <= window_blocks(group.window, ahead, size)
            if ahead <= size:  # no chunk in flight
                assert len(table.kept) <= -(-group.window // size) + 1


@pytest.mark.parametrize(
    ("kind", "ops"),
    [*((kind, ops_for("cpu")) for kind in KINDS), ("gpt_oss", ReferenceOps())],
    ids=lambda value: getattr(value, "name", value),
)
def test_batches_and_chunks_equal_generate(kind: str, ops: Any) -> None:
    engine = engine_of(kind, ops=ops)
    assert isinstance(engine.cache, CacheGroups) == (kind != "mistral")
    assert engine.cache.groups[-1].name == f"window {WINDOW[kind]}"
    requests = []
    for number, prompt in enumerate(prompts()):
        requests.append(submit(engine, str(number), prompt, OUTPUT))
        for _ in range(3):
            step(engine)
            assert_within_windows(engine)
    run(engine)
    for request in requests:
        assert_generated(kind, request)
    assert requests[-1].cached_tokens > 0 and requests[-2].cached_tokens > 0


@pytest.mark.parametrize(
    ("preemption", "device"),
    [("swap", CrampedRunner), ("swap", DeferredRunner), ("recompute", DeferredRunner)],
    ids=["swap", "swap-in-flight", "recompute-in-flight"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_preempted_and_reshaped_they_equal_generate(kind: str, preemption: str, device: type[ModelRunner]) -> None:
    """Too few blocks for all, and blocks of other sizes meanwhile; with and without a step in flight."""
    num_blocks = 16 if kind == "mistral" else 30
    engine = engine_of(kind, device=device, host_blocks=24, preemption=preemption, hasty=True, num_blocks=num_blocks)
    requests = [submit(engine, str(number), prompt, OUTPUT) for number, prompt in enumerate(prompts())]
    wanted = iter([16, 32, 8, 16, 8] * 10)
    for number in range(10_000):
        if not engine.has_work:
            break
        step(engine)
        assert_within_windows(engine)
        if number % 9 == 8:
            reconfigure(engine, {"block_size": next(wanted, 8)})
            engine.cache.check()
    assert sum(request.preemptions for request in requests) > 2
    for request in requests:
        assert_generated(kind, request)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_one_prompt_equal_generate(kind: str) -> None:
    """Greedy, so that all samples are the same: each on its own copy of the shared tail, in every group."""
    engine = engine_of(kind)
    requests = [submit(engine, str(number), prompts()[number], OUTPUT, n=3) for number in (4, 6, 7)]
    run(engine)
    for request in requests:
        for index in range(3):
            assert_generated(kind, request, index)


@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_is_found_once_its_last_window_is_all_that_is_left(kind: str) -> None:
    engine = engine_of(kind, num_blocks=40)
    first = submit(engine, "first", prompts()[6], OUTPUT)
    run(engine)
    window = engine.cache.groups[-1]
    whole = first.sequences[0].tokens
    # What came before the last window leaves the cache, as if others had needed the room.
    held = {e.depth: block for block, e in window.device.index.entries().items() if isinstance(e.key, bytes)}
    needed = (len(whole) // 8 * 8 - WINDOW[kind] + 1) // 8
    for depth in range(needed):
        window.device.drop([held[depth]])
    engine.cache.check()
    again = submit(engine, "again", [*whole, 1, 2, 3], OUTPUT)
    run(engine)
    assert again.cached_tokens == (len(whole) - 1) // 8 * 8
    assert_generated(kind, again)
    # Without that, nothing of it is found, although the full layers have all of it.
    window.device.drop([{e.depth: b for b, e in window.device.index.entries().items()}[needed]])
    assert engine.cache.match([*whole, 4], salt="") == 0
