"""From a configuration to an engine that answers."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
import torch
from pagedeck.engine.assembly import Assembled, assemble, pool_blocks, usable_cores
from pagedeck.engine.cache.layer_groups import Division, group_layers
from pagedeck.engine.cache.storage import KVLayout
from pagedeck.engine.config import GIB, EngineConfig
from pagedeck.engine.reconfigure import reconfigure
from pagedeck.ipc.vocabulary import FinishReason, Refused, SamplingParams
from transformers import AutoModelForCausalLM

LAYOUT = KVLayout(2, 2, 16, torch.float32)
BLOCK = LAYOUT.slot_bytes * 32
ONE_GROUP = Division(
    groups=group_layers([0, 0], 4096),
    layer_bytes=LAYOUT.slot_bytes // 2,
    context_length=4096,
    max_batch_size=64,
    token_budget=256,
)


def make(folder: Path, **settings: object) -> Assembled:
    return assemble(EngineConfig(**{"model": str(folder), "device": "cpu", "threads": 1} | settings), lambda *_: None)


def test_nothing_is_left_open(tiny_model_folder: Path) -> None:
    made = make(tiny_model_folder, num_blocks=None, memory_utilization=0.01, threads=None, swap_space_gib=0.001)
    config = made.config
    assert config == made.engine.config
    assert (config.device, config.dtype, config.context_length) == ("cpu", "float32", 4096)
    assert (config.token_budget, config.threads, config.memory_utilization) == (256, usable_cores(), 0.01)
    assert config.num_blocks is not None and config.num_blocks > 1
    assert made.storages[0].pool.shape == (2, 2, config.num_blocks * 32, 2, 16)
    assert made.engine.cache.device.num_blocks == config.num_blocks
    host_blocks = int(0.001 * GIB) // BLOCK
    assert made.engine.cache.host.num_blocks == host_blocks
    assert len(made.storages[0].host) == host_blocks * 32


def test_it_answers_as_generate_does(tiny_model_folder: Path) -> None:
    made = make(tiny_model_folder, num_blocks=64, block_size=8, token_budget=16)
    tokenizer = made.model.tokenizer
    assert tokenizer is not None
    texts: dict[str, str] = {}
    prompts = {name: tokenizer.encode(name) for name in ("the quick brown fox " * 3, "lazy dog", "sun")}
    for name, prompt in prompts.items():
        sampling = SamplingParams(max_tokens=12, temperature=0.0)
        made.engine.submit(id=name, prompt=prompt, sampling=sampling, priority=0)
    ended = []
    while made.engine.has_work:
        result = made.engine.step()
        ended += result.ended
        for output in result.outputs:
            texts[output.request.id] = texts.get(output.request.id, "") + output.text
    assert {r.id for r in ended} == set(prompts)
    assert all(r.sequences[0].finish_reason in (FinishReason.LENGTH, FinishReason.STOP) for r in ended)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_folder, dtype=torch.float32)
    for name, prompt in prompts.items():
        ids = torch.tensor([prompt])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=0
        )
        assert texts[name] == tokenizer.decode(out[0, len(prompt) :], skip_special_tokens=True)


def test_warm_up_leaves_the_pool_free(tiny_model_folder: Path) -> None:
    made = make(tiny_model_folder, num_blocks=1, block_size=8)
    assert made.engine.cache.device.free_count == 1
    assert made.engine.step_number == 0


def test_progress_is_told(tiny_model_folder: Path) -> None:
    said: list[str] = []
    config = EngineConfig(model=str(tiny_model_folder), device="cpu", num_blocks=4, threads=1)
    assemble(config, lambda message, fraction: said.append(message))
    assert said == [
        "Loading tiny-llama",
        "Fitting the layers to this machine",
        "Reserving the KV cache",
        "Warming up the kernels",
    ]


def test_pool_is_a_share_of_what_is_free() -> None:
    config = EngineConfig(memory_utilization=0.5)
    assert pool_blocks(config, ONE_GROUP, 1000 * BLOCK) == 500
    assert pool_blocks(EngineConfig(num_blocks=7), ONE_GROUP, 1000 * BLOCK) == 7


def test_memory_that_does_not_do_is_refused_with_numbers() -> None:
    with pytest.raises(Refused, match=r"which takes 0\.02 GiB; 0\.02 GiB are free, enough for 1,000 blocks") as refused:
        pool_blocks(EngineConfig(num_blocks=1500), ONE_GROUP, 1000 * BLOCK)
    assert refused.value.field == "num_blocks"
    with pytest.raises(Refused, match="holds no block") as refused:
        pool_blocks(EngineConfig(memory_utilization=0.5), ONE_GROUP, BLOCK)
    assert refused.value.field == "memory_utilization"


def test_usable_cores_are_those_of_this_process() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    "swap", [60_000.0, 0.98 * psutil.virtual_memory().total / GIB], ids=["vast", "beside the pool"]
)
def test_swap_space_beyond_the_memory_is_refused_with_the_numbers(swap: float, tiny_model_folder: Path) -> None:
    with pytest.raises(Refused, match=r"swap_space_gib is [\d.]+; accepted is up to [\d.]+ GiB") as refusal:
        make(tiny_model_folder, num_blocks=None, memory_utilization=0.9, swap_space_gib=swap)
    assert refusal.value.field == "swap_space_gib"


def answers(made: Assembled, disturbed: bool) -> list[list[int]]:
    """What requests are answered, alone or with everything that moves their keys and values."""
    engine = made.engine
    requests = []
    for number in range(6):
        prompt = [(number * 37 + i * 11) % 320 for i in range(9 + 5 * number)]
        sampling = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)
        requests.append(engine.submit(id=str(number), prompt=prompt, sampling=sampling, priority=number % 2))
        while engine.has_work and not disturbed:
            engine.step()
    for changes in ({"block_size": 32}, {"num_blocks": 40}, {"block_size": 8}, {}):
        for _ in range(5 if disturbed else 0):
            engine.step()
        if disturbed:
            reconfigure(engine, changes)
            engine.scheduler.preempt(list(engine.scheduler.running)[-1])
    while engine.has_work:
        engine.step()
    assert bool(engine.metrics.counters.swaps) == disturbed
    return [request.sequences[0].tokens[len(request.prompt) :] for request in requests]


@pytest.mark.parametrize(("kv_dtype", "bytes_a_head"), [("int8", 32), ("fp8", 16)])
def test_narrow_caches_hold_more_tokens_and_give_the_same_answers_however_they_move(
    kv_dtype: str, bytes_a_head: int, tiny_model_folder: Path
) -> None:
    settings = {"num_blocks": 60, "block_size": 8, "swap_space_gib": 0.001, "preemption": "swap", "token_budget": 24}
    made = make(tiny_model_folder, kv_dtype=kv_dtype, **settings)
    assert made.model.layout.slot_bytes == 2 * 2 * 2 * bytes_a_head == made.storages[0].pool[:, :, 0].nbytes
    assert made.engine.runner.slot_bytes == (made.model.layout.slot_bytes,)
    assert answers(made, disturbed=False) == answers(make(tiny_model_folder, kv_dtype=kv_dtype, **settings), True)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_rounded_weights_answer_nearly_alike(weights: str, tiny_model_folder: Path) -> None:
    made = make(tiny_model_folder, num_blocks=64, weights=weights)
    kinds = {type(module).__name__ for module in made.engine.runner.network.modules()}
    assert "QuantizedLinear" in kinds and not kinds & {"Linear", "PackedLinear", "TiledLinear"}
    assert made.engine.runner.network.head.quantized.bits == 8
    assert made.config.weights == weights
    exact, got = (answers(m, disturbed=False) for m in (make(tiny_model_folder, num_blocks=64), made))
    same = sum(a[0] == b[0] for a, b in zip(exact, got, strict=True))
    assert same >= (6 if weights == "int8" else 3)


def test_rounded_weights_are_for_the_cpu(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(Refused, match="weights is 'int8'; accepted is auto on a GPU") as refusal:
        make(tiny_model_folder, device="cuda", weights="int8")
    assert refusal.value.field == "weights"
