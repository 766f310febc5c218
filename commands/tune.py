"""``pagedeck tune``: find the settings that suit a load, with evidence; set them on an engine; take them back."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..bench import report as page
from ..bench import results
from ..bench.figures import Limits
from ..bench.own import started
from ..bench.results import Results
from ..bench.tuner.objective import Objective
from ..bench.tuner.search import FULL, Search, Tried, name_of, run_of, trials
from ..bench.witness import Witness
from ..engine.config import EngineConfig
from ..engine.model.checkpoint import locate
from ..ipc.client import Client
from ..ipc.folders import state_folder
from ..ipc.vocabulary import Refused
from .bench import check_output
from .load import LoadOptions
from .settings import PATIENCE_S, describe
from .terminal import Progress, table

#: Requests of a load, below which nothing can be said of settings.
LEAST = 5

UNDO = "tune-undo.json"


def tune(
    *,
    model: str,
    load: str,
    trace: str | None,
    requests: int,
    arrivals: str | None,
    speed: float,
    seed: int,
    objective: str,
    ttft_limit: float | None,
    itl_limit: float | None,
    minutes: float,
    threads: int | None,
    apply: str | None,
    undo: bool,
    output: str,
) -> int:
    """Search, tell, and set what was chosen if ``apply`` names an engine (empty: the only one)."""
    if undo:
        return take_back()
    check_output(output, requests=requests, threads=threads)
    if not 0 < minutes <= 1440:
        raise Refused.value("minutes", minutes, "a number above 0, up to 1,440")
    aim = Objective(objective, Limits(ttft_limit, itl_limit))
    threads = threads or os.cpu_count() or 1
    wanted = LoadOptions(model, load, trace, requests, arrivals, speed, seed)
    found = results.new("tune", load=wanted.facts(threads))
    kept = _kept(found, Path(output))
    deadline = time.monotonic() + 60 * minutes

    def keep(tried: Tried) -> None:
        found.runs.append(run_of(tried))
        results.write(found, Path(output))

    with Progress() as progress:
        folder = locate(EngineConfig(model=model), progress).folder
        items = wanted.items(folder)
        if len(items) < LEAST:
            raise Refused.value("requests", len(items), f"an integer from {LEAST}, so that a gain differs from noise")
        with started(folder, threads, progress) as client, Witness(client) as witness:
            client.timeout = PATIENCE_S
            search = Search(client, witness, items, aim, deadline=deadline, report=progress, kept=kept, keep=keep)
            try:
                best = search.run()
            except KeyboardInterrupt:
                progress.clear()
                print(f"Interrupted; the same command goes on from {output}.")
                return 130
    found.trials, found.chosen = trials(search, aim), best.settings
    found.objective = {"name": objective, "ttft_limit": ttft_limit, "itl_limit": itl_limit}
    found.changed = search.changed(best)
    found.gain = search.gain(best)
    changed = search.evidence(best)
    found.notes = [*search.notes.values(), *(f"{change}: {what}" for change, what in changed)]
    results.write(found, Path(output))
    beside = Path(output).with_suffix(".html")
    page.write(found, beside)
    print(render(search, aim, best, changed))
    print(f"All samples: {output}; with pictures: {beside}")
    if apply is not None:
        return set_on(apply or None, best.settings)
    return 0


def _kept(found: Results, path: Path) -> list[Tried]:
    """The trials of a search for the same load that was interrupted; they are taken into ``found``."""
    if not path.exists():
        return []
    before = results.read(path)
    if before.kind != "tune" or before.load != found.load:
        text = f"{path} holds results of something else; state another file with --output, or remove it."
        raise Refused(text, field="output")
    if before.chosen:  # it had ended
        return []
    found.runs = before.runs
    return [Tried(run.settings, run.name.partition(":")[0], run.outcomes) for run in before.runs]


def render(search: Search, aim: Objective, best: Tried, changed: Sequence[tuple[str, str]]) -> str:
    """What was tried, what was chosen and why."""
    heads = ["stage", "settings", "tokens/s", "TTFT P95, s", "latency P95, s", aim.name]
    rows = [heads]
    for tried in search.tried:
        told = aim.figures([tried.outcomes])
        cells = [f"{told[name][0]:.3g}" for name in ("tokens_per_s", "ttft_p95", "e2e_p95")]
        mark = "chosen" if tried is best else ""
        rows.append([tried.stage, name_of(tried.settings), *cells, f"{aim.value(tried.outcomes):.3g} {mark}".rstrip()])
    base = next(tried for tried in search.tried if tried.stage == FULL)
    lines = [table(rows, right=frozenset({2, 3, 4})), ""]
    if best.settings == base.settings:
        lines.append("Nothing that was tried is better than the settings as they are, beyond noise.")
    else:
        gain = aim.gain([best.outcomes], [base.outcomes])
        lines.append(
            f"Chosen: {name_of(best.settings)}. {gain.value:.2f} × as good as before, with 95 % confidence "
            f"{gain.low:.2f} to {gain.high:.2f}."
        )
        lines += [f"  {change}: {what}" for change, what in changed]
    return "\n".join([*lines, *search.notes.values()])


def set_on(engine: str | None, settings: dict[str, Any]) -> int:
    """Set ``settings`` on a running engine, and note what they were before."""
    with Client(engine) as client:
        client.timeout = PATIENCE_S
        report = client.reconfigure(settings)
        before = {name: was for name, (was, _) in report.changes.items()}
        note = {"engine": client.connection.name, "settings": before}
        state_folder().joinpath(UNDO).write_text(json.dumps(note), encoding="utf-8")
    print(describe(report))
    print("`pagedeck tune --undo` takes it back.")
    return 0


def take_back() -> int:
    """Set an engine's settings to what they were before :func:`set_on`."""
    path = state_folder() / UNDO
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused("There is nothing to take back: no settings were set by --apply.", field="undo") from None
    with Client(note["engine"]) as client:
        client.timeout = PATIENCE_S
        report = client.reconfigure(note["settings"])
    path.unlink()
    print(describe(report))
    return 0
