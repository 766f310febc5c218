"""The baselines on a tiny random model: they must be honest, or comparing with them means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagedeck.bench import baselines
from pagedeck.bench.quick import run_baseline
from pagedeck.bench.workload import Item, mixed
from pagedeck.ipc.launch import LaunchFailed

ITEMS = mixed(5, seed=3, vocabulary=320, prompts=(2, 30), outputs=(3, 12))


def test_padding_changes_no_output(tiny_model_folder: Path) -> None:
    model = baselines.load(tiny_model_folder)
    pairs = [(item.prompt, item.output_tokens) for item in ITEMS]
    alone = [baselines.generate(model, [pair])[0] for pair in pairs]
    assert baselines.generate(model, pairs) == alone
    assert [len(output) for output in alone] == [item.output_tokens for item in ITEMS]


def test_end_of_text_does_not_end_a_request(tiny_model_folder: Path) -> None:
    model = baselines.load(tiny_model_folder)
    prompt = ITEMS[0].prompt
    [[first, *_]] = baselines.generate(model, [(prompt, 8)])
    model.generation_config.eos_token_id = None
    model.config.eos_token_id = first
    assert len(baselines.generate(model, [(prompt, 8)])[0]) == 8


def test_a_baseline_runs_in_its_own_process(tiny_model_folder: Path) -> None:
    reports: list[tuple[str, float | None]] = []

    def run(batch: int):
        return run_baseline(
            "peer",
            tiny_model_folder,
            ITEMS,
            batch=batch,
            threads=1,
            report=lambda text, share: reports.append((text, share)),
        )

    alone, batched = run(1), run(2)
    assert alone.outputs == batched.outputs
    assert alone.agreement(batched) == len(ITEMS)
    assert alone.output_tokens == sum(item.output_tokens for item in ITEMS)
    assert alone.finished == sorted(alone.finished) and len(set(alone.finished)) == 5
    assert len(set(batched.finished)) == 3  # a batch's requests end together
    assert reports[-1] == ("peer", 1.0)


def test_a_baseline_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="peer failed: "):
        run_baseline("peer", tmp_path, [Item([1], 1)], batch=1, threads=1, report=lambda *_: None)
