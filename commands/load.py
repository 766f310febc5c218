"""``pagedeck bench run``, ``compare``, ``report`` and ``summary``: one load on one or several systems, and what came
of it."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..bench import report as page
from ..bench import results, traces, variants
from ..bench.changes import changes
from ..bench.figures import Limits, figures_with, good
from ..bench.noise import interval
from ..bench.peers import Others
from ..bench.results import Results
from ..bench.shape import shape_of
from ..bench.summary import summary_of
from ..bench.workload import Item, make_load
from ..engine.config import EngineConfig
from ..engine.model.checkpoint import locate
from .bench import check_output, kept, pair
from .terminal import Progress, table


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the command line says of a load."""

    model: str
    load: str
    trace: str | None
    requests: int
    arrivals: str | None
    speed: float
    seed: int

    def items(self, model: Path) -> list[Item]:
        """The load, for the model in that folder."""
        shape = shape_of(model)
        size = {"vocabulary": shape.vocabulary, "context_length": shape.context_length}
        if self.trace:
            lines = traces.read_trace(Path(self.trace))[: self.requests]
            return traces.items(lines, seed=self.seed, speed=self.speed, **size)
        return make_load(self.load, self.requests, seed=self.seed, arrivals=self.arrivals, **size)

    def facts(self, threads: int) -> dict[str, Any]:
        """What tells one load from another, for a file of results."""
        facts = {"name": self.trace or self.load, "requests": self.requests, "seed": self.seed, "threads": threads}
        facts |= {"model": self.model} if self.model != EngineConfig().model else {}
        facts |= {"arrivals": self.arrivals} if self.arrivals else {}
        return facts | ({"speed": self.speed} if self.trace else {})


def run(
    *,
    model: str,
    load: str,
    trace: str | None,
    requests: int,
    arrivals: str | None,
    speed: float,
    systems: str,
    repeat: int,
    threads: int | None,
    seed: int,
    settings: list[str],
    openvino_model: str | None,
    openvino_python: str,
    openvino_precision: str,
    server_precision: str,
    ttft_limit: float | None,
    itl_limit: float | None,
    output: str,
) -> int:
    """Measure each of ``systems`` on the load, ``repeat`` times, in turns; write JSON and HTML beside it."""
    check_output(output, requests=requests, threads=threads, repeat=repeat)
    names = [name.strip() for name in systems.split(",") if name.strip()]
    others = Others(openvino_model, openvino_python, openvino_precision, server_precision)
    variants.check_names(names, others)
    chosen = [pair(setting) for setting in settings]
    wanted = LoadOptions(model, load, trace, requests, arrivals, speed, seed)
    threads = threads or os.cpu_count() or 1
    with Progress() as progress:
        folder = locate(EngineConfig(model=model), progress).folder
        items = wanted.items(folder)
        limits = Limits(ttft_limit, itl_limit).stated()
        found = results.new("run", load=wanted.facts(threads), limits=limits)
        with kept(found, output):
            for turn, name in itertools.product(range(repeat), names):

                def report(text: str, share: float | None, turn: int = turn) -> None:
                    progress(f"{text}, run {turn + 1} of {repeat}", share)

                found.runs.append(
                    variants.measure(
                        name, folder, items, threads=threads, settings=chosen, others=others, report=report
                    )
                )
                results.write(found, Path(output))  # what is measured is kept, whatever comes next
    beside = Path(output).with_suffix(".html")
    page.write(found, beside)
    print(render(found))
    print(f"All samples: {output}; with pictures: {beside}")
    return 0


def compare(*, before: str, after: str, fail: bool, as_json: bool) -> int:
    """What changed beyond noise; with ``fail``, 1 if anything got worse."""
    found = changes(results.read(Path(before)), results.read(Path(after)))
    worse = [change for change in found if change.better is False]
    if as_json:
        print(json.dumps([asdict(change) for change in found]))
        return 1 if fail and worse else 0
    rows = [["system", "figure", "after ÷ before", "95 % interval", ""]]
    words = {True: "better", False: "worse", None: "within noise"}
    for change in found:
        spread = f"{change.ratio.low:.3f} to {change.ratio.high:.3f}"
        rows.append([change.name, change.figure, f"{change.ratio.value:.3f}", spread, words[change.better]])
    print(table(rows, right=frozenset({2})))
    print(f"{len(worse)} of {len(found)} figures are worse beyond noise.")
    return 1 if fail and worse else 0


def readable(file: str) -> Path:
    """The path of a file of results. Raises :class:`Refused` for one that is none."""
    results.read(Path(file))
    return Path(file)


def report(*, file: str, output: str | None) -> int:
    """The HTML page of a file of results."""
    path = Path(output) if output else Path(file).with_suffix(".html")
    page.write(results.read(Path(file)), path)
    print(path)
    return 0


def summary(*, file: str) -> int:
    """What a viewer shows of a file of results, as JSON."""
    print(json.dumps(summary_of(results.read(Path(file)))))
    return 0


def render(found: Results) -> str:
    """A table with a column for each system."""
    names = found.names()
    rows = [["", *names]]
    rows.append(["weights", *(next(run.precision for run in found.runs if run.name == name) for name in names)])
    for figure, (unit, _, of) in figures_with(Limits(**found.limits)).items():
        cells = []
        for name in names:
            runs = [good(run) for run in found.repetitions(name)]
            if not all(runs):
                cells.append("")
                continue
            value = interval(runs, of)
            known = value.value or figure == "goodput"
            cells.append(f"{value.value:.3g} ({value.low:.3g} to {value.high:.3g})" if known else "–")
        rows.append([f"{figure}, {unit}", *cells])
    failed = [sum(bool(one.error) for run in found.repetitions(name) for one in run) for name in names]
    rows.append(["failed requests", *map(str, failed)])
    told = [next((run.engine for run in found.runs if run.name == name and run.engine), {}) for name in names]
    for key in dict.fromkeys(key for facts in told for key in facts):
        cells = [_fact(facts.get(key)) for facts in told]
        rows.append([key.replace("_", " "), *cells])
    late = max((one.sent - one.due for run in found.runs for one in run.outcomes), default=0.0)
    notes = (
        "Times count from when a request was due; in brackets, the interval of 95 % confidence. "
        f"The latest request was sent {late * 1e3:.0f} ms after it was due."
    )
    return f"{table(rows, right=frozenset(range(1, len(names) + 1)))}\n\n{notes}"


def _fact(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}" if isinstance(value, float) else str(value)
