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
from ..bench.results import Changed, Results, Run
from ..bench.tuner.objective import Objective
from ..bench.tuner.search import Search, Tried, name_of, trials
from ..bench.witness import Witness
from ..bench.workload import Item
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

HEADS = {
    "tokens_per_s": "tokens/s",
    "ttft_p95": "TTFT P95, s",
    "e2e_p95": "latency P95, s",
    "goodput": "goodput, requests/s",
}


def tune(
    *,
    model: str,
    load: str,
    trace: str | None,
    requests: int,
    arrivals: str | None,
    speed: float,
    seed: int,
    objective: str | None,
    ttft_limit: float | None,
    itl_limit: float | None,
    minutes: float,
    threads: int | None,
    apply: str | None,
    undo: bool,
    output: str,
) -> int:
    """Search, tell, and set what was chosen if ``apply`` names an engine (empty: the only one). What a search that has
    ended chose is set without another search."""
    if undo:
        return take_back()
    check_output(output, requests=requests, threads=threads)
    if not 0 < minutes <= 1440:
        raise Refused.value("minutes", minutes, "a number above 0, up to 1,440")
    if objective is not None:
        Objective(objective, Limits(ttft_limit, itl_limit))
    threads = threads or os.cpu_count() or 1
    wanted = LoadOptions(model, load, trace, requests, arrivals, speed, seed)
    found = results.new("tune", load=wanted.facts(threads))
    before = _before(found, Path(output))
    deadline = time.monotonic() + 60 * minutes

    def keep(run: Run) -> None:
        found.runs.append(run)
        results.write(found, Path(output))

    with Progress() as progress:
        folder = locate(EngineConfig(model=model), progress).folder
        items = wanted.items(folder)
        _check(items, minutes)
        limits = Limits(ttft_limit, itl_limit)
        aim = Objective(objective or _objective_of(items, limits), limits)
        found.limits = limits.stated()
        found.objective = {"name": aim.name, "ttft_limit": ttft_limit, "itl_limit": itl_limit}
        if before is not None and before.chosen and apply is not None and before.objective == found.objective:
            progress.clear()
            print(f"{output} holds this search's result.")
            return set_on(apply or None, before.chosen)
        kept = _kept(found, before)
        try:
            with started(folder, threads, progress) as client, Witness(client) as witness:
                client.timeout = PATIENCE_S
                search = Search(client, witness, items, aim, deadline=deadline, report=progress, kept=kept, keep=keep)
                best = search.run()
        except KeyboardInterrupt:  # the engine has ended, and with it all that would still be told
            progress.clear()
            print(f"Interrupted; the same command goes on from {output}.")
            return 130
    found.trials, found.chosen = trials(search, aim), best.settings
    found.changed, found.gain = search.changed(), search.gain()
    found.notes = [*search.notes.values(), *map(_evidence, found.changed)]
    results.write(found, Path(output))
    beside = Path(output).with_suffix(".html")
    page.write(found, beside)
    print(render(search, aim))
    print(f"All samples: {output}; with pictures: {beside}")
    if apply is not None:
        return set_on(apply or None, best.settings)
    return 0


def _check(items: Sequence[Item], minutes: float) -> None:
    """Raises :class:`Refused` for a load of which nothing could be told."""
    if len(items) < LEAST:
        raise Refused.value("requests", len(items), f"an integer from {LEAST}, so that a gain differs from noise")
    lasts = max(item.at for item in items)
    if lasts > 60 * minutes:
        accepted = f"a number above {lasts / 60:.1f}, which the load alone lasts; or take fewer requests of it"
        raise Refused.value("minutes", minutes, accepted)


def _objective_of(items: Sequence[Item], limits: Limits) -> str:
    """What there is to gain: where requests come when they come, throughput is theirs as long as an engine keeps up."""
    if limits != Limits():
        return "goodput"
    return "latency" if any(item.at and item.after is None for item in items) else "throughput"


def _before(found: Results, path: Path) -> Results | None:
    """An earlier search for the same load."""
    if not path.exists():
        return None
    before = results.read(path)
    if before.kind != "tune" or before.load != found.load:
        text = f"{path} holds results of something else; state another file with --output, or remove it."
        raise Refused(text, field="output")
    return before


def _kept(found: Results, before: Results | None) -> list[Tried]:
    """The trials of a search that was interrupted; its runs are taken into ``found``."""
    if before is None or before.chosen:  # it had ended
        return []
    found.runs = before.runs
    kept: dict[str, Tried] = {}
    for run in before.runs:
        tried = kept.setdefault(run.name, Tried(run.settings, run.name.partition(":")[0]))
        tried.runs.append(run.outcomes)
    return list(kept.values())


def _evidence(change: Changed) -> str:
    """What a change gained, where that was measured."""
    text = "measured together with the others only"
    if change.gain:
        value, low, high = change.gain
        text = f"alone {value:.2f} × as good ({low:.2f} to {high:.2f}), {change.stage}"
    return f"{change.setting} {change.before} → {change.after}: {text}"


def render(search: Search, aim: Objective) -> str:
    """What was tried, what was chosen and why."""
    figures = list(dict.fromkeys(["tokens_per_s", "ttft_p95", "e2e_p95", aim.figure]))
    rows = [["stage", "settings", "runs", *(HEADS[name] for name in figures), ""]]
    for tried in search.tried:
        told = aim.figures(tried.runs)
        cells = [_with_interval(told[name]) if name == aim.figure else f"{told[name][0]:.3g}" for name in figures]
        mark = "chosen" if tried is search.best else ""
        rows.append([tried.stage, search.told(tried.settings), str(len(tried.runs)), *cells, mark])
    lines = [table(rows, right=frozenset(range(2, 3 + len(figures)))), "", f"It was: {name_of(search.base.settings)}."]
    gain, turns = search.gain(), len(search.turns)
    if not gain:
        lines.append("Nothing that was tried is better than the settings as they are, beyond noise.")
    else:
        value, low, high = gain
        again = f", measured again in turns, {turns} runs of each" if turns else ""
        lines.append(
            f"Chosen: {search.told(search.best.settings)}. {aim.name.capitalize()} is {value:.2f} × as good as it was, "
            f"with 95 % confidence {low:.2f} to {high:.2f}{again}."
        )
        lines += [f"  {_evidence(change)}" for change in search.changed()]
    return "\n".join([*lines, *search.notes.values()])


def _with_interval(ends: Sequence[float]) -> str:
    value, low, high = ends
    return f"{value:.3g} ({low:.3g} to {high:.3g})"


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
