"""``pagedeck bench claims``: a table of what is claimed and what was measured."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from ..bench import report as page
from ..bench import results
from ..bench.claims import table as rows
from ..bench.claims.ground import Ground, Row
from ..bench.results import Claim, Results
from ..engine.config import EngineConfig
from ..engine.model.checkpoint import locate
from ..ipc.vocabulary import Refused
from .bench import check_output
from .terminal import Progress, duration, table


def claims(
    *,
    model: str,
    only: str,
    listed: bool,
    as_json: bool,
    repeat: int,
    threads: int | None,
    seed: int,
    resume: bool,
    output: str,
) -> int:
    """Measure the chosen rows; each is written as soon as it is known."""
    chosen = rows.chosen([key.strip() for key in only.split(",") if key.strip()])
    if listed and as_json:
        told = [{"key": row.key, "name": row.name, "claimed": row.claimed, "how": row.how} for row in chosen]
        print(json.dumps(told))
        return 0
    if listed:
        lines = [[row.key, row.name, row.claimed, f"{row.minutes:.1f} min"] for row in chosen]
        print(table([["row", "claim", "claimed", "a run, about"], *lines], right=frozenset({3})))
        return 0
    check_output(output, repeat=repeat, threads=threads)
    threads = threads or os.cpu_count() or 1
    found = _begin(model, repeat=repeat, threads=threads, seed=seed)
    kept = _kept(found, Path(output)) if resume else {}
    left = [row for row in chosen if _key(row) not in kept]
    found.claims = list(kept.values())
    with Progress() as progress:
        if kept:
            print(f"Rows kept from before: {len(kept)}; left to measure: {len(left)}.", flush=True)
        folder = locate(EngineConfig(model=model), progress).folder
        ground = Ground(folder, threads=threads, repeat=repeat, seed=seed, report=progress)
        try:
            for claim in rows.measure(left, ground):
                found.claims = _in_order([*found.claims, claim])
                _write(found, output)
                progress.clear()
                print(render(claim), flush=True)
        except KeyboardInterrupt:
            progress.clear()
            print(f"Interrupted. What was measured is kept: --resume --output {output} goes on.", file=sys.stderr)
            raise
    _write(found, output)
    met = sum(claim.met is True for claim in found.claims)
    missed = sum(claim.met is False for claim in found.claims)
    print(f"{met} met, {missed} missed. All samples: {output}; as a page: {_page_of(output)}")
    return 0


def _begin(model: str, **load: int) -> Results:
    named = {"model": model} if model != EngineConfig().model else {}
    return results.new("claims", load=load | named)


def _kept(wanted: Results, path: Path) -> dict[tuple[str, str], Claim]:
    """What an earlier run left in ``path``, if it measured the same in the same way with the same version; none
    where there is no such file.

    Raises:
        Refused: the file holds something else.
    """
    if not path.exists():
        return {}
    before = results.read(path)
    same = before.kind == "claims" and before.load == wanted.load
    if not same or before.surroundings.get("pagedeck") != wanted.surroundings.get("pagedeck"):
        raise Refused(f"{path} holds other results than --resume goes on with; state another --output.", field="resume")
    current = {_key(row) for row in rows.ROWS}
    return {key: claim for claim in before.claims if (key := (claim.name, claim.how)) in current}


def _key(row: Row) -> tuple[str, str]:
    """What tells whether a measured claim is that of this row, measured as it is now."""
    return row.name, row.how


def _in_order(claims: Sequence[Claim]) -> list[Claim]:
    names = [row.name for row in rows.ROWS]
    return sorted(claims, key=lambda claim: names.index(claim.name))


def _write(found: Results, output: str) -> None:
    results.write(found, Path(output))
    page.write(found, _page_of(output))


def _page_of(output: str) -> Path:
    return Path(output).with_suffix(".html")


def render(claim: Claim) -> str:
    mark = {True: "met", False: "missed", None: ""}[claim.met]
    measured = f"{claim.measured} ({claim.spread})" if claim.spread else claim.measured
    facts = [("claimed", claim.claimed), ("measured", measured), ("verdict", mark), ("how", claim.how)]
    if claim.took_s:
        facts.append(("took", duration(claim.took_s)))
    return "\n".join([claim.name, *(line for title, text in facts for line in _wrapped(title, text))]) + "\n"


def _wrapped(title: str, text: str) -> list[str]:
    """A text of one or several lines beside its title."""
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, 108)]
    return [f"  {title if place == 0 else '':<10}{line}" for place, line in enumerate(lines)]
