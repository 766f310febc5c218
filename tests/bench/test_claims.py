"""The table of claims, and how its rows are measured, on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagedeck.bench import results
from pagedeck.bench.claims import batching, memory, serving, table
from pagedeck.bench.claims.ground import Ground, Measured, Row
from pagedeck.bench.drive import Outcome
from pagedeck.bench.inside import simulated_memory
from pagedeck.bench.results import Claim
from pagedeck.bench.workload import Item
from pagedeck.commands.claims import claims, render
from pagedeck.ipc.vocabulary import Refused


@pytest.fixture
def ground(tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    return Ground(tiny_model_folder, threads=1, repeat=1, seed=0, report=lambda text, share: None)


def row(key: str) -> Row:
    return table.chosen([key])[0]


def test_rows_are_chosen_by_their_keys() -> None:
    assert table.chosen([]) == table.ROWS and len({row.key for row in table.ROWS}) == len(table.ROWS)
    assert [row.key for row in table.chosen(["reuse", "tail"])] == ["reuse", "tail"]
    with pytest.raises(Refused, match="only is 'speed'; accepted is reservation, "):
        table.chosen(["speed"])


def test_memory_is_measured_without_a_model(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("REQUESTS", 60), ("MANY_REQUESTS", 200), ("SMALL_POOL", 100), ("FEW_LIVE", 8)):
        monkeypatch.setattr(simulated_memory, name, value)
    reservation = row("reservation").measure(ground)
    assert reservation.met and 0.85 < reservation.samples["contiguous"][0] < 0.95
    assert reservation.samples["paged"][0] < 0.15
    assert 0 < row("reuse").measure(ground).samples["reused"][0] < 1
    assert memory.ROWS[0] is row("reservation")


def test_an_engine_says_what_its_steps_were_spent_on(ground: Ground) -> None:
    device, bookkeeping = (row(key).measure(ground).samples["share"][0] for key in ("device", "bookkeeping"))
    assert 0 < bookkeeping < 1 and 0 < device < 1 and device + bookkeeping <= 1.001


def test_memory_runs_out_and_who_loses_its_blocks_is_rescued(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CROWD", 8)  # with half of it now and then only three lose their blocks
    monkeypatch.setattr(serving, "SCARCE", 24)
    found = row("rescue").measure(ground)
    assert found.met and found.samples["share"] == [1.0] and found.samples["lost"][0] >= 4
    assert all(len(found.samples[f"span_s{way}"]) == 1 for way in ("", "_recomputing", "_reserved"))


def test_what_conversations_share_is_measured_under_two_system_prompts(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CONVERSATIONS", 2)
    monkeypatch.setattr(memory, "SYSTEM_PROMPTS", (32, 128))
    found = row("sharing").measure(ground)
    assert len(found.samples["hits"]) == 2 and all(0 < hits < 1 for hits in found.samples["hits"])
    assert "a system prompt of 32 tokens" in found.text and "under one of 128" in found.text


def test_a_batch_ends_with_its_longest_output() -> None:
    ends = [(3.0, 2), (3.0, 6), (5.0, 1)]  # when, after how many tokens
    outcomes = [Outcome(ended=at, tokens=[0] * count) for at, count in ends]
    assert batching._batch_steps(outcomes) == 6 + 6 + 1


def test_the_rate_at_a_latency_is_the_highest_that_keeps_it(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        """Answers after as many seconds as requests come a second."""

        def run(self, items: list[Item]) -> tuple[list[Outcome], None]:
            rate = round(len(items) / items[-1].at)
            return [Outcome(item.at, item.at, item.at + rate) for item in items], None

    monkeypatch.setattr(batching, "REQUESTS", 4_000)
    rate, latency = batching._within(65.0, ground, Slow(), 100.0, 0)  # type: ignore[arg-type]
    assert rate == 60.0 and 55 < latency <= 65
    assert batching._within(1.0, ground, Slow(), 100.0, 0)[0] == 0.0  # type: ignore[arg-type]


def test_the_table_of_block_sizes(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "BLOCK_SIZES", (8, 64))
    found = row("blocks").measure(ground)
    assert found.met is None and len(found.text.splitlines()) == 2
    assert found.text.startswith("8: ") and "\n64: " in found.text
    assert len(found.samples["itl_p99_8"]) == len(found.samples["tokens_per_s_64"]) == 1


def test_claims_come_as_they_are_measured_and_are_told(ground: Ground) -> None:
    rows = [Row(str(n), f"claim {n}", "much", "somehow", 1, lambda _: Measured("more", True)) for n in range(2)]
    measured = table.measure(rows, ground)
    first = next(measured)
    assert first == Claim("claim 0", "much", "more", "somehow", True, took_s=first.took_s)
    assert [claim.name for claim in measured] == ["claim 1"]
    assert render(Claim("a", "85 %", "91 %", "so", True, "90 to 92")).splitlines() == [
        "a",
        "  claimed   85 %",
        "  measured  91 % (90 to 92)",
        "  verdict   met",
        "  how       so",
    ]
    assert render(Claim("a", "-", "8: 1\n16: 2", "so", None)).splitlines()[2:4] == [
        "  measured  8: 1",
        " " * 12 + "16: 2",
    ]


def test_rows_that_are_measured_are_kept(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def once(_: Ground) -> Measured:
        if asked.pop(0):
            raise KeyboardInterrupt
        return Measured("more", True)

    def measure() -> int:
        return claims(
            model=str(tiny_model_folder), only="", listed=False, as_json=False, repeat=1, threads=1, seed=seed,
            resume=True, output=str(output),
        )  # fmt: skip

    output, seed, asked = tmp_path / "claims.json", 0, [False, True, False]
    monkeypatch.setattr(table, "ROWS", [Row(str(n), f"claim {n}", "much", "somehow", 1, once) for n in range(2)])
    with pytest.raises(KeyboardInterrupt):
        measure()
    assert [claim.name for claim in results.read(output).claims] == ["claim 0"]
    assert "--resume" in capsys.readouterr().err
    assert measure() == 0 and asked == []
    assert [claim.name for claim in results.read(output).claims] == ["claim 0", "claim 1"]
    assert (
        "Rows kept from before: 1; left to measure: 1." in capsys.readouterr().out
        and "2 met" in output.with_suffix(".html").read_text()
    )
    seed = 1
    with pytest.raises(Refused, match="holds other results"):
        measure()
