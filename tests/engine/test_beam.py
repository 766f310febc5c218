"""Beams and ``best_of``: the tokens of transformers' beam search, whatever happens meanwhile, on shared blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedeck.engine.cache.kv_cache import TransferKind
from pagedeck.engine.model.attention import ATTENTION_NAME
from pagedeck.engine.reconfigure import reconfigure
from pagedeck.engine.request import Request
from pagedeck.engine.scheduling.beam import BeamSearch
from pagedeck.engine.scores import Scores
from pagedeck.ipc.vocabulary import FinishReason, Refused, RequestState, SamplingParams

from .harness import expected, make_engine, model_engine, output, run, step, submit
from .tiny_models import VOCABULARY, tiny_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8]


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    yield tiny_model("llama", ATTENTION_NAME)


# --- against transformers -------------------------------------------------------------------------------------------


def of_transformers(
    prompt: list[int], *, max_tokens: int, eos: list[int], **more: Any
) -> list[tuple[list[int], float]]:
    """Output and score of each returned sequence, the best first."""
    reference = tiny_model("llama", "eager")
    made = reference.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=max_tokens,
        do_sample=False,
        eos_token_id=eos or None,
        pad_token_id=VOCABULARY + 1,
        return_dict_in_generate=True,
        output_scores=True,
        **more,
    )
    outputs = [[token for token in row[len(prompt) :].tolist() if token <= VOCABULARY] for row in made.sequences]
    return list(zip(outputs, made.sequences_scores.tolist(), strict=True))


def assert_same(request: Request, wanted: list[tuple[list[int], float]]) -> None:
    assert request.state is RequestState.FINISHED, request.error
    assert [output(request, index) for index in range(len(wanted))] == [tokens for tokens, _ in wanted]
    assert [s.score for s in request.sequences] == pytest.approx([score for _, score in wanted], rel=1e-5)


@pytest.mark.parametrize("width", [1, 2, 4, 7])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, -0.7, 2.0])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_the_tokens_are_those_of_transformers(
    model: Any, width: int, length_penalty: float, early_stopping: bool
) -> None:
    for eos in ([], [11], list(range(20, 34))):
        engine = model_engine(model, eos_ids=frozenset(eos))
        returned = max(1, width - 1)
        beams = {"beam_width": width, "length_penalty": length_penalty, "early_stopping": early_stopping}
        request = submit(engine, "a", PROMPT, 18, n=returned, **beams)
        run(engine)
        if width == 1:  # one beam is greedy search, which transformers does not score
            assert output(request) == of_transformers_greedy(PROMPT, 18, eos)
            continue
        named = {"num_beams": width, "length_penalty": length_penalty, "early_stopping": early_stopping}
        wanted = of_transformers(PROMPT, max_tokens=18, eos=eos, num_return_sequences=returned, **named)
        assert_same(request, wanted)


def of_transformers_greedy(prompt: list[int], max_tokens: int, eos: list[int]) -> list[int]:
    reference = tiny_model("llama", "eager")
    made = reference.generate(
        torch.tensor([prompt]), max_new_tokens=max_tokens, do_sample=False, eos_token_id=eos or None, pad_token_id=0
    )
    return made[0, len(prompt) :].tolist()


# --- on shared blocks -----------------------------------------------------------------------------------------------


def journalled(engine: Any) -> list[Any]:
    """All transfers that the engine's device will carry out."""
    transfers: list[Any] = []
    execute = engine.runner.execute

    def recording(plan: Any, cache: Any) -> list[int]:
        transfers.extend(cache.journal)
        return execute(plan, cache)

    engine.runner.execute = recording
    return transfers


def test_beams_share_the_prompt_and_copy_only_the_tails_they_write() -> None:
    engine = make_engine(num_blocks=64, block_size=8)
    request = submit(engine, "a", [*range(100, 133)], 30, beam_width=4, n=4, ignore_eos=True)
    transfers = journalled(engine)
    while engine.has_work:
        transfers.clear()
        step(engine)
        beams = [s for s in request.sequences if s.number in engine.cache.tables]
        if not request.forked or not beams:
            continue
        tables = [engine.cache.table(s.number).tolist() for s in beams]
        assert len(beams) == 4
        assert len({tuple(table[:4]) for table in tables}) == 1, "the prompt's full blocks are there once"
        assert len(transfers) <= 3 and {t.kind for t in transfers} <= {TransferKind.COPY}, "a tail for each but one"
        apart = {block for table in tables for block in table[4:]}
        assert engine.cache.device.used_count + engine.cache.device.reserved_count == 4 + len(apart)
    assert request.state is RequestState.FINISHED


def test_what_nobody_goes_on_from_gives_its_blocks_back() -> None:
    engine = make_engine(num_blocks=64, block_size=8, prefix_caching=False)
    submit(engine, "a", [*range(100, 133)], 40, beam_width=6)
    run(engine)
    assert engine.cache.device.free_count == 64
    assert not engine.cache.tables and not engine.scheduler.running and not engine.scheduler.waiting


# --- whatever happens meanwhile -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["swap", "recompute"])
@pytest.mark.parametrize("block_sizes", [(8, 16), (16, 8)])
def test_preempted_beams_find_the_same(model: Any, policy: str, block_sizes: tuple[int, int]) -> None:
    """One beam after the other loses its blocks, while it waits for the others and while they wait for it; the
    blocks change their size; and others come and go."""
    wanted = of_transformers(PROMPT, max_tokens=16, eos=[], num_beams=4, num_return_sequences=3)
    engine = model_engine(
        model, num_blocks=400 // block_sizes[0], block_size=block_sizes[0], host_blocks=40, preemption=policy,
        token_budget=3,
    )  # fmt: skip
    request = submit(engine, "a", PROMPT, 16, beam_width=4, n=3)
    lost = set()
    turn = 0
    while engine.has_work:
        step(engine)
        turn += 1
        running = [s for s in request.sequences if s.state is RequestState.RUNNING and not s.owes]
        if turn % 5 == 0 and running and request.forked:
            victim = running[turn % len(running)]
            lost.add((victim.idle, policy))
            engine.scheduler.preempt(victim)
        if turn % 7 == 0 and turn < 50:
            submit(engine, f"beside{turn}", PROMPT[: turn % 17 + 1], 3, priority=turn % 3 * 10)
        if turn == 20:
            reconfigure(engine, {"block_size": block_sizes[1]})
        if turn == 30 and f"beside{28}" in engine.requests:
            engine.cancel("beside28")
        assert turn < 1_000
    assert lost == {(True, policy), (False, policy)}
    assert_same(request, wanted)


def test_a_search_whose_beams_take_turns_gets_on() -> None:
    engine = make_engine(token_budget=1, max_batch_size=4, num_blocks=32)
    request = submit(engine, "a", [*range(100, 120)], 10, beam_width=4, n=4)
    same = make_engine(token_budget=64, num_blocks=64)
    undisturbed = submit(same, "a", [*range(100, 120)], 10, beam_width=4, n=4)
    run(engine)
    run(same)
    assert [output(request, i) for i in range(4)] == [output(undisturbed, i) for i in range(4)]


def test_beams_that_wait_for_others_give_way_to_those_they_wait_for() -> None:
    """Two searches, of each of which a beam was put out: the places that are left go to the older one."""
    engine = make_engine(max_batch_size=6, num_blocks=64, preemption="recompute")
    searches = [submit(engine, f"s{i}", [i + 1, *range(100, 110)], 12, beam_width=3) for i in range(2)]
    while not all(s.forked for s in searches):
        step(engine)
    for number in range(2):  # take one place of each search, and hold it for a while
        submit(engine, f"u{number}", [50 + number], 6, priority=0)
    reconfigure(engine, {"class_limits": "normal=3"})
    run(engine)
    assert [s.state for s in searches] == [RequestState.FINISHED] * 2


@pytest.mark.parametrize("way", [{"beam_width": 3}, {"n": 1, "best_of": 3}])
def test_a_cancelled_search_says_nothing_and_frees_everything(way: dict[str, Any]) -> None:
    engine = make_engine(prefix_caching=False)
    request = submit(engine, "a", [*range(100, 120)], 30, **way)
    outputs = [o for _ in range(6) for o in step(engine).outputs]
    assert engine.cancel("a")
    results = run(engine)
    assert not outputs and not any(result.outputs for result in results)
    assert request.state is RequestState.CANCELLED
    assert [s.finish_reason for s in request.sequences] == [FinishReason.CANCELLED]
    assert request.output_tokens == 0
    assert engine.cache.device.used_count == 0


def test_a_search_cancelled_after_one_of_its_samples_ended_is_cancelled(model: Any) -> None:
    engine = model_engine(model, eos_ids=frozenset(range(0, VOCABULARY, 4)))
    params = SamplingParams(max_tokens=40, temperature=1.0, seed=3, n=1, best_of=8)
    request = engine.submit(id="a", prompt=PROMPT, sampling=params, priority=10)
    while not request.sequences[0].state.ended:
        step(engine)
    assert engine.cancel("a")
    run(engine)
    assert request.state is RequestState.CANCELLED
    assert {s.finish_reason for s in request.sequences} == {FinishReason.CANCELLED}


# --- the best of several --------------------------------------------------------------------------------------------


def test_the_best_of_several_come_back_whole_and_in_order(model: Any) -> None:
    def ask(**way: Any) -> Request:
        engine = model_engine(model, eos_ids=frozenset({11}))
        params = SamplingParams(max_tokens=12, temperature=1.0, seed=5, **way)
        made = engine.submit(id="a", prompt=PROMPT, sampling=params, priority=10)
        outputs = [o for result in run(engine) for o in result.outputs]
        if way.get("best_of"):
            assert [o.index for o in outputs] == [0, 1, 2], "one message each, at the end"
            assert [o.token_ids for o in outputs] == [output(made, index) for index in range(3)]
            assert [o.text for o in outputs] == ["".join(f"{t} " for t in o.token_ids if t != 11) for o in outputs]
        return made

    every = ask(n=8)
    reference = tiny_model("llama", "eager")

    def mean_logprob(index: int) -> float:
        tokens = output(every, index)
        logits = reference(torch.tensor([[*PROMPT, *tokens]])).logits[0]
        logprobs = torch.log_softmax(logits, 1)
        return sum(float(logprobs[len(PROMPT) + i - 1, t]) for i, t in enumerate(tokens)) / len(tokens)

    means = {index: mean_logprob(index) for index in range(8)}
    best = sorted(means, key=lambda index: -means[index])[:3]
    request = ask(n=3, best_of=8)
    assert [output(request, index) for index in range(3)] == [output(every, index) for index in best]
    assert [s.score for s in request.sequences] == pytest.approx([means[index] for index in best])
    assert request.output_tokens == sum(len(output(every, index)) for index in best)


def test_as_many_as_asked_for_are_not_ranked_and_come_as_they_are_made() -> None:
    engine = make_engine()
    request = submit(engine, "a", [5, 6, 7], 4, n=2, best_of=2)
    outputs = [o for result in run(engine) for o in result.outputs]
    assert [len(o.token_ids) for o in outputs] == [1] * 8
    assert all(output(request, index) == expected(request, index) for index in range(2))


# --- the search itself ----------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-5, -0.01), min_size=9, max_size=9), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
@settings(max_examples=50, deadline=None)
def test_a_search_as_wide_as_the_tree_finds_the_best(weights: list[float], penalty: float) -> None:
    """Three tokens, three long, the last of them an end: against all outputs there are."""
    search = BeamSearch(27, ends={2}, max_tokens=3, length_penalty=penalty, early_stopping=False)

    def logprob(output: tuple[int, ...], token: int) -> float:
        return weights[(sum(output) * 3 + len(output) + token) % 9]

    every: dict[tuple[int, ...], float] = {}

    def grow(output: tuple[int, ...], total: float) -> None:
        for token in range(3):
            longer, score = (*output, token), total + logprob(output, token)
            if token == 2 or len(longer) == 3:
                every[longer] = score / len(longer) ** penalty
            else:
                grow(longer, score)

    grow((), 0.0)
    outputs: list[list[int]] = [[]]
    while not search.done:
        offers = []
        for made in outputs:
            ranked = sorted(range(3), key=lambda token, made=made: -logprob(tuple(made), token))
            offers.append(Scores(0.0, ranked, [logprob(tuple(made), token) for token in ranked]))
        branches = search.advance(outputs, offers)
        outputs = [[*outputs[branch.parent], branch.token] for branch in branches]
    assert [h.score for h in search.hypotheses] == pytest.approx(sorted(every.values(), reverse=True))
    assert {tuple(h.tokens) for h in search.hypotheses} == set(every)


def test_a_search_that_is_left_with_fewer_tokens_than_beams_goes_on_with_those() -> None:
    search = BeamSearch(3, ends=(), max_tokens=2, length_penalty=1.0, early_stopping=False)
    assert len(search.advance([[]], [Scores(0.0, [4, 5], [-1.0, -2.0])])) == 2
    assert search.advance([[4], [5]], [Scores(0.0, [6], [-1.0]), Scores(0.0, [], [])]) == []
    assert search.done and [h.tokens for h in search.hypotheses] == [[4, 6]]
    assert not math.isnan(search.hypotheses[0].score)


# --- at the edge ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"beam_width": 65}, "beam_width"),
        ({"beam_width": -1}, "beam_width"),
        ({"beam_width": True}, "beam_width"),
        ({"beam_width": 2, "n": 3}, "n"),
        ({"beam_width": 2, "best_of": 2}, "best_of"),
        ({"beam_width": 2, "temperature": 0.5}, "temperature"),
        ({"beam_width": 2, "stop": ("a",)}, "stop"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 65}, "best_of"),
        ({"length_penalty": math.nan}, "length_penalty"),
        ({"length_penalty": 11.0}, "length_penalty"),
        ({"early_stopping": 1}, "early_stopping"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refusal:
        SamplingParams(**{"temperature": 0.0, **fields}).check()
    assert refusal.value.field == field


def test_more_beams_than_places_are_refused_now_and_later() -> None:
    engine = make_engine(max_batch_size=8, class_limits="batch=2")
    with pytest.raises(Refused, match=r"beam_width is 9.*up to 8.*max_batch_size"):
        submit(engine, "a", [1, 2], 4, beam_width=9)
    with pytest.raises(Refused, match=r"beam_width is 3.*class batch.*up to 2.*class_limits"):
        submit(engine, "a", [1, 2], 4, beam_width=3, priority=20)
    request = submit(engine, "a", [1, 2], 4, beam_width=3)
    with pytest.raises(Refused, match="class_limits"):
        engine.set_priority("a", 20)
    for changes in ({"max_batch_size": 2}, {"class_limits": "normal=2"}):
        with pytest.raises(Refused, match="beam_width is 3"):
            reconfigure(engine, changes)
    run(engine)
    assert request.state is RequestState.FINISHED
