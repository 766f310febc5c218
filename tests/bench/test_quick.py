"""The whole comparison on a tiny model: three systems in processes of their own, one load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pagedeck.bench.quick import Comparison, System, compare
from pagedeck.bench.workload import Item
from pagedeck.commands.bench import render


@pytest.fixture
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))


@pytest.mark.usefixtures("private_folders")
def test_all_systems_answer_the_same_load_with_the_same_tokens(tiny_model_folder: Path) -> None:
    reports: list[tuple[str, float | None]] = []
    comparison = compare(
        tiny_model_folder, requests=5, threads=1, seed=0, report=lambda text, share: reports.append((text, share))
    )
    names = ["Pagedeck", "transformers, one by one", "transformers, batches of 8"]
    assert [system.name for system in comparison.systems] == names
    lengths = [item.output_tokens for item in comparison.items]
    for system in comparison.systems:
        assert [len(output) for output in system.outputs] == lengths
        assert system.output_tokens == sum(lengths)
        assert system.agreement(comparison.systems[1]) == 5
        assert all(finished > 0 for finished in system.finished)
        assert (system.name, 1.0) in reports
    facts = json.loads(json.dumps(comparison.facts()))
    assert facts["load"]["output_tokens"] == lengths
    assert [system["same_tokens_as_one_by_one"] for system in facts["systems"]] == [5, 5, 5]


def test_the_table_says_how_much_faster_and_how_equal() -> None:
    items = [Item([1] * 10, 2), Item([1] * 20, 2)]
    ours = System("Pagedeck", 4, [1.0, 2.0], [[1, 2], [3, 4]])
    alone = System("alone", 4, [4.0, 8.0], [[1, 2], [3, 4]])
    batched = System("batched", 4, [4.0, 4.0], [[1, 2], [3, 5]])
    text = render(Comparison([ours, alone, batched], items, threads=2, seed=0))
    assert "2 requests at once, 30 prompt and 4 output tokens, float32, greedy, 2 threads" in text
    rows = {line.split("  ")[0]: " ".join(line.split()) for line in text.splitlines()}
    assert rows["Pagedeck"] == "Pagedeck 2.0 1.00 s 2.00 s 2 of 2 requests"
    assert rows["alone"] == "alone 0.5 4.0 × as fast 4.00 s 8.00 s"
    assert rows["batched"] == "batched 1.0 2.0 × as fast 4.00 s 4.00 s 1 of 2 requests"
