"""The runner on real models, caches and tensors against ``transformers.generate``, token for token."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from pagedeck.engine.cache.kv_cache import KVCache
from pagedeck.engine.cache.layer_groups import group_layers
from pagedeck.engine.cache.storage import KVLayout, KVStorage
from pagedeck.engine.model.attention import ATTENTION_NAME
from pagedeck.engine.model.runner import ModelRunner
from pagedeck.engine.request import Request, Sequence, StepPlan, Work
from pagedeck.ipc.vocabulary import SamplingParams
from pagedeck.kernels import Ops, ops_for
from pagedeck.kernels.reference import ReferenceOps
from transformers import PreTrainedModel

from .tiny_models import CONFIGS, VOCABULARY, served, tiny_model

OPS: list[Ops] = [ReferenceOps(), ops_for("cpu")]


def make_runner(model: PreTrainedModel, cache: KVCache, ops: Ops) -> ModelRunner:
    """Over one group of all layers, whatever their windows."""
    network, shape, windows = served(model)
    storage = KVStorage(KVLayout(*shape, torch.float64), cache.num_slots, cache.num_host_slots, "cpu", ops)
    storage.pool.fill_(float("nan"))  # whatever reads a slot that was not written becomes visible
    return ModelRunner(network, group_layers([0] * len(windows), 256), [storage], ops)


def new_sequence(number: int, prompt: list[int], **sampling: object) -> Sequence:
    params = SamplingParams(**{"temperature": 0.0} | sampling)
    sequence = Sequence(number, Request(number, str(number), prompt, params, 0), 0, list(prompt))
    sequence.request.sequences.append(sequence)
    return sequence


def finish(runner: ModelRunner, cache: KVCache, plan: StepPlan) -> None:
    """Run ``plan`` and commit what it computed, as the core does."""
    for work in plan.work:
        cache.grow(work.sequence.number, work.start + work.count)
    tokens = iter(runner.execute(plan, cache))
    for work in plan.work:
        sequence = work.sequence
        sequence.computed = work.start + work.count
        if work.samples:
            sequence.tokens.append(next(tokens))
        cache.commit(sequence.number, sequence.tokens, sequence.computed)
    assert next(tokens, None) is None


def random_plans(sequences: list[Sequence], cache: KVCache, output: int, seed: int) -> Iterator[StepPlan]:
    """Staggered arrivals, decodes mixed with prefill chunks of random lengths, until each has ``output`` tokens."""
    choose = random.Random(seed)
    waiting, running = list(sequences), []
    while waiting or running:
        if waiting and (not running or choose.random() < 0.5):
            arrived = waiting.pop(0)
            arrived.computed = cache.open(arrived.number, arrived.tokens)
            running.append(arrived)
        works = []
        for sequence in running:
            count = 1 if sequence.pending == 1 else min(choose.randint(1, 9), sequence.pending)
            works.append(Work(sequence, sequence.computed, count, count == sequence.pending))
        works.sort(key=lambda work: work.count > 1)
        yield StepPlan(works)
        for sequence in [s for s in running if s.output_length == output]:
            running.remove(sequence)
            cache.close(sequence.number)


PROMPT_LENGTHS = [1, 2, 7, 8, 9, 31, 32, 33, 50]


def prompts() -> list[list[int]]:
    choose = random.Random(4)
    made = [[choose.randrange(VOCABULARY) for _ in range(length)] for length in PROMPT_LENGTHS]
    made.append([*made[-1][:40], 5, 6, 7])  # shares whole blocks with the one before it
    made.append(list(made[6]))  # and a whole prompt, which ends on a block's border
    return made


def generated(model: PreTrainedModel, prompt: list[int], output: int) -> list[int]:
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=output, do_sample=False)
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("ops", OPS, ids=lambda ops: ops.name)
@pytest.mark.parametrize("kind", list(CONFIGS))
def test_mixed_batches_equal_generate(kind: str, ops: Ops) -> None:
    reference = tiny_model(kind, "eager")
    expected = [generated(reference, prompt, 12) for prompt in prompts()]
    assert len({tuple(tokens) for tokens in expected}) > 5
    model = tiny_model(kind, ATTENTION_NAME)
    for block_size in (8, 32):
        cache = KVCache(64, block_size)
        runner = make_runner(model, cache, ops)
        sequences = [new_sequence(i, prompt) for i, prompt in enumerate(prompts())]
        for plan in random_plans(sequences, cache, 12, seed=block_size):
            finish(runner, cache, plan)
        assert [s.tokens[s.prompt_length :] for s in sequences] == expected


def run_alone(runner: ModelRunner, cache: KVCache, sequence: Sequence, output: int) -> list[int]:
    sequence.computed = cache.open(sequence.number, sequence.tokens)
    while sequence.output_length < output:
        finish(runner, cache, StepPlan([Work(sequence, sequence.computed, sequence.pending, True)]))
    return sequence.tokens[sequence.prompt_length :]


@pytest.fixture
def llama() -> PreTrainedModel:
    return tiny_model("llama", ATTENTION_NAME)


def test_forks_swaps_and_repages_do_not_change_tokens(llama: PreTrainedModel) -> None:
    expected = generated(tiny_model("llama", "eager"), prompts()[-2], 20)
    cache = KVCache(32, 8, 32)
    runner = make_runner(llama, cache, ops_for("cpu"))
    parent = new_sequence(0, prompts()[-2])
    run_alone(runner, cache, parent, 5)
    child = Sequence(1, parent.request, 1, list(parent.tokens), parent.computed)
    cache.fork(0, 1)
    pair = StepPlan([Work(s, s.computed, 1, True) for s in (parent, child)])
    finish(runner, cache, pair)  # both write after a shared partial block
    assert runner.bytes_copied == 8 * sum(runner.slot_bytes)
    cache.swap_out(1)
    for _ in range(3):
        finish(runner, cache, StepPlan([Work(parent, parent.computed, 1, True)]))
    cache.swap_in(1)
    for block_size in (16, 64, 8):
        runner.execute(StepPlan(), cache)
        change = cache.plan_reshape(block_size=block_size)
        runner.reshape(change)
        cache.reshape(change)
        finish(runner, cache, StepPlan([Work(s, s.computed, 1, True) for s in (child, parent)]))
    while parent.output_length < 20 or child.output_length < 20:
        finish(runner, cache, StepPlan([Work(s, s.computed, 1, True) for s in (child, parent)]))
    assert parent.tokens[parent.prompt_length :][:20] == expected
    assert child.tokens[child.prompt_length :][:20] == expected


def test_host_pool_changes_its_size_under_a_swapped_sequence(llama: PreTrainedModel) -> None:
    expected = generated(tiny_model("llama", "eager"), prompts()[-2], 8)
    cache = KVCache(32, 8, 32)
    runner = make_runner(llama, cache, ops_for("cpu"))
    sequence = new_sequence(0, prompts()[-2])
    run_alone(runner, cache, sequence, 4)
    cache.swap_out(0)
    runner.execute(StepPlan(), cache)
    assert runner.bytes_copied > 0
    change = cache.plan_reshape(num_host_blocks=8)
    assert runner.reshape(change) > 0
    cache.reshape(change)
    assert len(runner.storages[0].host) == 64
    cache.swap_in(0)
    while sequence.output_length < 8:
        finish(runner, cache, StepPlan([Work(sequence, sequence.computed, 1, True)]))
    assert sequence.tokens[sequence.prompt_length :] == expected


def test_seeded_sampling_does_not_depend_on_the_batch(llama: PreTrainedModel) -> None:
    def run(together: bool) -> list[int]:
        cache = KVCache(64, 8)
        runner = make_runner(llama, cache, ops_for("cpu"))
        one = new_sequence(0, prompts()[5], temperature=1.0, seed=3, top_p=0.9)
        if not together:
            return run_alone(runner, cache, one, 15)
        others = [new_sequence(i, prompt, temperature=1.0) for i, prompt in enumerate(prompts()[:5], 1)]
        for plan in random_plans([*others, one], cache, 15, seed=1):
            finish(runner, cache, plan)
        return one.tokens[one.prompt_length :]

    assert run(together=True) == run(together=False)


def test_one_sick_row_leaves_the_others(llama: PreTrainedModel) -> None:
    cache = KVCache(64, 8)
    runner = make_runner(llama, cache, ops_for("cpu"))
    sequences = [new_sequence(i, prompts()[i]) for i in (2, 3, 4)]
    for sequence in sequences:
        cache.open(sequence.number, sequence.tokens)
        cache.grow(sequence.number, sequence.prompt_length + 1)
    plan = StepPlan([Work(s, 0, s.prompt_length, True) for s in sequences])
    tokens = runner.execute(plan, cache)
    for sequence, token in zip(sequences, tokens, strict=True):
        sequence.tokens.append(token)
    runner.storages[0].pool[1, 1, cache.slots(3, 2, 3)[0]] = float("nan")
    decodes = StepPlan([Work(s, s.prompt_length, 1, True) for s in sequences])
    after = runner.execute(decodes, cache)
    assert after[1] == -1
    assert after[0] != -1 and after[2] != -1


def test_steps_without_samples_return_nothing(llama: PreTrainedModel) -> None:
    cache = KVCache(64, 8)
    runner = make_runner(llama, cache, ops_for("cpu"))
    sequence = new_sequence(0, prompts()[5])
    cache.open(0, sequence.tokens)
    cache.grow(0, 31)
    assert runner.execute(StepPlan([Work(sequence, 0, 9, False)]), cache) == []
    assert runner.forward_ms > 0
    assert runner.execute(StepPlan(), cache) == []
    assert (runner.forward_ms, runner.sample_ms) == (0.0, 0.0)
