"""transformers as a peer, on a tiny random model: it must be honest, or comparing with it means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagedeck.bench import baselines, peers
from pagedeck.bench.workload import Item, mixed
from pagedeck.ipc.launch import LaunchFailed

ITEMS = mixed(5, seed=3, vocabulary=320, prompts=(2, 30), outputs=(3, 12))
PAIRS = [(item.prompt, item.output_tokens) for item in ITEMS]


def test_padding_changes_no_output(tiny_model_folder: Path) -> None:
    model = baselines.load(tiny_model_folder)
    alone = [baselines.generate(model, [pair])[0] for pair in PAIRS]
    assert baselines.generate(model, PAIRS) == alone
    assert [len(output) for output in alone] == [item.output_tokens for item in ITEMS]


def test_requests_that_run_alone_end_one_by_one_and_a_batch_ends_as_one(tiny_model_folder: Path) -> None:
    model = baselines.load(tiny_model_folder)
    done: list[int] = []
    alone = baselines.static(model, PAIRS, 1, done.append)
    batched = baselines.static(model, PAIRS, 2, lambda _: None)
    assert alone["outputs"] == batched["outputs"]
    assert done == [0, 1, 2, 3, 4, 5]
    assert alone["finished"] == sorted(alone["finished"]) and len(set(alone["finished"])) == 5
    assert len(set(batched["finished"])) == 3


def test_end_of_text_does_not_end_a_request(tiny_model_folder: Path) -> None:
    model = baselines.load(tiny_model_folder)
    prompt = ITEMS[0].prompt
    [[first, *_]] = baselines.generate(model, [(prompt, 8)])
    model.generation_config.eos_token_id = None
    model.config.eos_token_id = first
    assert len(baselines.generate(model, [(prompt, 8)])[0]) == 8
    [output] = baselines.continuous(model, [(prompt, 8)], lambda _: None)["outputs"]
    assert output[0] == first and len(output) == 8


def test_a_baseline_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="transformers, one by one failed: "):
        peers.measure("one-by-one", tmp_path, [Item([1], 1)], threads=1, report=lambda text, share: None)
