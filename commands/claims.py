"""``pagedeck bench claims``: a table of what is claimed and what was measured."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path

from ..bench import report as page
from ..bench import results
from ..bench.claims import table as rows
from ..bench.claims.ground import Ground
from ..bench.results import Claim
from ..engine.config import EngineConfig
from ..engine.model.checkpoint import locate
from .bench import check_output
from .terminal import Progress, table


def claims(
    *, model: str, only: str, listed: bool, as_json: bool, repeat: int, threads: int | None, seed: int, output: str
) -> int:
    """Measure the chosen rows; each is written as soon as it is known."""
    chosen = rows.chosen([key.strip() for key in only.split(",") if key.strip()])
    if listed and as_json:
        told = [{"key": row.key, "name": row.name, "claimed": row.claimed, "how": row.how} for row in chosen]
        print(json.dumps(told))
        return 0
    if listed:
        print(table([["row", "claim", "claimed"], *([row.key, row.name, row.claimed] for row in chosen)]))
        return 0
    check_output(output, repeat=repeat, threads=threads)
    threads = threads or os.cpu_count() or 1
    with Progress() as progress:
        folder = locate(EngineConfig(model=model), progress).folder
        found = results.new("claims", load={"seed": seed, "repeat": repeat, "threads": threads})
        for claim in rows.measure(chosen, Ground(folder, threads=threads, repeat=repeat, seed=seed, report=progress)):
            found.claims.append(claim)
            results.write(found, Path(output))
            progress.clear()
            print(render(claim), flush=True)
    beside = Path(output).with_suffix(".html")
    page.write(found, beside)
    met = sum(claim.met is True for claim in found.claims)
    missed = sum(claim.met is False for claim in found.claims)
    print(f"{met} met, {missed} missed. All samples: {output}; as a page: {beside}")
    return 0


def render(claim: Claim) -> str:
    mark = {True: "met", False: "missed", None: ""}[claim.met]
    spread = f" ({claim.spread})" if claim.spread else ""
    lines = [f"{claim.name}", f"  claimed   {claim.claimed}", f"  measured  {claim.measured}{spread}  {mark}".rstrip()]
    lines += textwrap.wrap(claim.how, 108, initial_indent="  how       ", subsequent_indent="            ")
    return "\n".join(lines) + "\n"
