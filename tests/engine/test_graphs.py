"""Decode steps that are padded and replayed give the tokens of those that are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pagedeck.engine.assembly import warm_up
from pagedeck.engine.cache.kv_cache import KVCache
from pagedeck.engine.cache.layer_groups import Division, group_layers
from pagedeck.engine.config import EngineConfig
from pagedeck.engine.model.attention import ATTENTION_NAME
from pagedeck.engine.model.graphs import DecodeGraphs
from pagedeck.engine.model.packing import Shape, bytes_of, pack, ship
from pagedeck.engine.reconfigure import reconfigure
from pagedeck.engine.request import Work
from pagedeck.ipc.vocabulary import SamplingParams
from torch import Tensor

from .harness import model_engine, run
from .recorded import LateReplayingRunner, ReplayingRunner
from .test_runner import generated, new_sequence, prompts
from .tiny_models import tiny_model

CPU = torch.device("cpu")
GREEDY = SamplingParams(max_tokens=24, temperature=0.0)


def decodes(lengths: list[int]) -> tuple[list[Work], KVCache]:
    cache = KVCache(96, 8)
    works = []
    for number, length in enumerate(lengths):
        sequence = new_sequence(number, [(number + i) % 97 for i in range(length)])
        cache.open(number, sequence.tokens)
        cache.grow(number, length)
        works.append(Work(sequence, length - 1, 1, True))
    return works, cache


def graphs() -> DecodeGraphs:
    return DecodeGraphs(lambda compute: compute, lambda step: lambda: step.ids.double(), CPU)


def test_shapes_are_few() -> None:
    def shape(count: int, longest: int) -> Shape | None:
        sequence = new_sequence(0, [1])
        works = [Work(sequence, longest - 1 if i == 0 else 3, 1, True) for i in range(count)]
        return graphs().shape(works)

    assert [shape(n, 5) for n in (1, 2, 3, 4, 5, 8, 9)] == [Shape(rows, 512) for rows in (1, 2, 4, 4, 8, 8, 16)]
    assert [shape(1, n) for n in (512, 513, 1024, 1025)] == [Shape(1, size) for size in (512, 1024, 1024, 2048)]
    assert shape(512, 5) == Shape(512, 512) and shape(513, 5) is None
    assert len({shape(n, 5) for n in range(1, 513)}) < 30


def test_only_steps_of_decodes_have_a_shape() -> None:
    sequence = new_sequence(0, [1] * 9)
    decode = Work(sequence, 8, 1, True)
    assert graphs().shape([decode, Work(sequence, 0, 2, True)]) is None
    assert graphs().shape([decode, Work(sequence, 0, 1, False)]) is None


def test_a_padded_step_is_the_step_and_rows_of_nobody() -> None:
    works, cache = decodes([9, 17, 30])
    plain, padded = pack(works, cache, {}), pack(works, cache, {}, Shape(8, 512))
    assert (plain.samples, padded.samples) == (3, 3)
    assert len(padded.ids) == padded.decodes == 8 and padded.max_context == 512
    for one, other in zip(list(plain)[:3], list(padded)[:3], strict=True):
        assert (one == other[:3]).all()
    assert (padded.query_start == range(9)).all() and (padded.sampled == range(8)).all()
    assert (padded.context_len == [9, 17, 30, 0, 0, 0, 0, 0]).all()
    assert (padded.slots[0][3:] == -1).all() and (padded.slots[0][:3] == plain.slots[0]).all()
    width = plain.tables[0].shape[1]
    assert padded.tables[0].shape == (8, 64) and (padded.tables[0][:3, :width] == plain.tables[0]).all()


def test_steps_of_one_shape_arrive_in_the_same_places() -> None:
    works, cache = decodes([9, 17, 30])
    first = pack(works, cache, {}, Shape(4, 512))
    second = pack(works[:2], cache, {}, Shape(4, 512))
    buffer = torch.zeros(bytes_of(first), dtype=torch.uint8)
    one, other = ship(first, CPU, buffer), ship(second, CPU, buffer)

    def tensors(step: Any) -> list[Tensor]:
        batch = step.batches[0]
        return [step.ids, step.positions, step.sampled, batch.query_start, batch.context_len, batch.block_tables,
                batch.slots]  # fmt: skip

    assert [t.data_ptr() for t in tensors(one)] == [t.data_ptr() for t in tensors(other)]
    loose = ship(second, CPU)
    for there, plain in zip(tensors(other), tensors(loose), strict=True):
        assert torch.equal(there, plain) and there.dtype == plain.dtype and there.data_ptr() % 16 == 0


def test_tokens_in_flight_have_room_in_the_buffer() -> None:
    works, cache = decodes([9] * 4)
    for work in works:
        del work.sequence.tokens[-1]
    step = pack(works, cache, {i: 3 - i for i in range(4)}, Shape(4, 512))
    there = ship(step, CPU, torch.zeros(bytes_of(step), dtype=torch.uint8))
    assert there.unknown.tolist() == [0, 1, 2, 3] and there.sources.tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
@pytest.mark.parametrize("runner", [ReplayingRunner, LateReplayingRunner])
@pytest.mark.parametrize("num_blocks", [96, 24], ids=["enough", "scarce"])
def test_replayed_steps_say_what_generate_says(kind: str, runner: Any, num_blocks: int) -> None:
    reference = tiny_model(kind, "eager")
    settings = {"token_budget": 48, "preemption": "swap", "hasty": True, "host_blocks": num_blocks // 2}
    engine = model_engine(tiny_model(kind, ATTENTION_NAME), kind=runner, num_blocks=num_blocks, **settings)
    requests = [engine.submit(id=str(i), prompt=p, sampling=GREEDY, priority=0) for i, p in enumerate(prompts())]
    for changes in ({"num_blocks": num_blocks + 8}, {"block_size": 16}, {"block_size": 8}):
        for _ in range(9):
            engine.step()
        engine.land()
        reconfigure(engine, changes)  # other pools, other places in them: what was recorded is no longer right
        assert changes.get("block_size") or len(engine.runner.graphs) == 0
    run(engine)
    assert [r.sequences[0].tokens[len(r.prompt) :] for r in requests] == [
        generated(reference, prompt, 24) for prompt in prompts()
    ]
    recorder = engine.runner.recorder
    assert recorder.replays > 2 * recorder.recordings > 0


@pytest.mark.parametrize(("num_blocks", "recorded"), [(6, 4), (40, 8)])
def test_every_shape_of_a_short_context_is_recorded_before_anybody_waits(num_blocks: int, recorded: int) -> None:
    engine = model_engine(tiny_model("llama", ATTENTION_NAME), kind=ReplayingRunner, num_blocks=num_blocks)
    division = Division(group_layers([0] * 3, 256), 256, context_length=256, max_batch_size=64, token_budget=32)
    warm_up(engine.runner, division, EngineConfig(num_blocks=num_blocks, block_size=8))
    assert engine.runner.recorder.recordings == len(engine.runner.graphs) == recorded
    requests = [engine.submit(id=str(i), prompt=[i], sampling=GREEDY, priority=0) for i in range(6)]
    run(engine)
    assert engine.runner.recorder.recordings == recorded
    reference = tiny_model("llama", "eager")
    assert [r.sequences[0].tokens[1:] for r in requests] == [generated(reference, [i], 24) for i in range(6)]


def test_a_device_that_cannot_record_computes_step_by_step(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(compute: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    class Refusing(ReplayingRunner):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.graphs = DecodeGraphs(refuse, self._bind, self._device)

    engine = model_engine(tiny_model("llama", ATTENTION_NAME), kind=Refusing)
    request = engine.submit(id="a", prompt=prompts()[4], sampling=GREEDY, priority=0)
    run(engine)
    expected = generated(tiny_model("llama", "eager"), prompts()[4], 24)
    assert request.sequences[0].tokens[len(request.prompt) :] == expected
    told = [r.getMessage() for r in caplog.records if "CUDA graphs" in r.getMessage()]
    assert told == ["decode steps run without CUDA graphs: operation not permitted when stream is capturing"]
