"""The table of claims, and how its rows are measured, on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagedeck.bench.claims import memory, serving, table
from pagedeck.bench.claims.ground import Ground, Measured, Row
from pagedeck.bench.inside import simulated_memory
from pagedeck.bench.results import Claim
from pagedeck.commands.claims import render
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


def test_who_loses_its_blocks_is_rescued(ground: Ground) -> None:
    found = row("rescue").measure(ground)
    assert found.met and found.samples["share"] == [1.0]
    assert "of 0 requests" not in found.text


def test_the_table_of_block_sizes(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "BLOCK_SIZES", (8, 64))
    found = row("blocks").measure(ground)
    assert found.met is None and set(found.samples) == {"tokens_per_s_8", "tokens_per_s_64"}
    assert found.text.startswith("8: ") and "; 64: " in found.text


def test_claims_come_as_they_are_measured_and_are_told(ground: Ground) -> None:
    rows = [Row(str(n), f"claim {n}", "much", "somehow", lambda _: Measured("more", True)) for n in range(2)]
    claims = table.measure(rows, ground)
    assert next(claims) == Claim("claim 0", "much", "more", "somehow", True)
    assert [claim.name for claim in claims] == ["claim 1"]
    assert render(Claim("a", "85 %", "91 %", "so", True, "90 to 92")).splitlines() == [
        "a",
        "  claimed   85 %",
        "  measured  91 % (90 to 92)  met",
        "  how       so",
    ]
