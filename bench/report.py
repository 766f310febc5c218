"""Results as one HTML file that needs nothing else: tables and pictures."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import figures
from .drive import Outcome
from .noise import Interval, interval
from .results import FULL, Results, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Distinguishable by colour-blind eyes (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; } small { opacity: .7; } tr.chosen { background: var(--soft); font-weight: 600; }
figure { margin: 1rem 0; background: #fff; border-radius: 6px; padding: .5rem; } svg { width: 100%; height: auto; }
.yes, .no { font-weight: 600; } .yes { color: #009e73; } .no { color: #d55e00; }
.claims td { padding: .7rem .6rem; } .claims td:first-child { width: 36%; } .claims td:nth-child(2) { width: 17%; }
"""

Draw = Callable[["Axes"], None]

#: What is drawn as a distribution: its key, its title, and the seconds that a run's outcomes give.
DISTRIBUTIONS: tuple[tuple[str, str, Callable[[Sequence[Outcome]], list[float]]], ...] = (
    ("ttft", "Time to the first token", lambda run: [figures.ttft(one) for one in run]),
    ("itl", "Time between two tokens", lambda run: [gap for one in run for gap in figures.between(one)]),
    ("e2e", "Time to the last token", lambda run: [figures.e2e(one) for one in run]),
)


def write(results: Results, path: Path) -> None:
    path.write_text(html(results), encoding="utf-8")


def html(results: Results) -> str:
    title = {"peers": "Systems side by side", "claims": "Claims, measured", "tune": "Settings, tuned"}
    parts = [f"<h1>{escape(title.get(results.kind, 'A load, measured'))}</h1>", _facts(results)]
    if results.claims:
        parts.append(_claims(results))
    if results.trials:
        parts.append(_trials(results))
    if results.runs:
        parts += [_runs(results), _pictures(results)]
    body = "\n".join(parts)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Pagedeck: {escape(results.kind)}</title>'
        f"<style>{STYLE}</style><body>{body}</body></html>\n"
    )


# --- tables ---------------------------------------------------------------------------------------------------------


def _facts(results: Results) -> str:
    around = results.surroundings
    machine = around.get("machine", {})
    rows = [
        ("Pagedeck", f"{around.get('pagedeck', '')}, {around.get('time', '')}"),
        ("Machine", f"{machine.get('processor', '')}, {machine.get('cores', '')} cores"),
        ("Libraries", ", ".join(f"{name} {version}" for name, version in around.get("libraries", {}).items())),
        ("Load", _pairs(results.load)),
        ("Good answers", _pairs(results.limits)),
        ("Chosen", _pairs(results.chosen)),
    ]
    return _table([], [[f"<b>{name}</b>", escape(text)] for name, text in rows if text])


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value not in (None, ""))


def _claims(results: Results) -> str:
    marks = {True: '<span class="yes">met</span>', False: '<span class="no">missed</span>', None: ""}
    rows = []
    for claim in results.claims:
        measured = escape(claim.measured).replace("\n", "<br>")
        spread = f"<br><small>{escape(claim.spread)}</small>" if claim.spread else ""
        name = f"<b>{escape(claim.name)}</b><br><small>{escape(claim.how)}</small>"
        rows.append([name, escape(claim.claimed), measured + spread, marks[claim.met]])
    met, missed = (sum(claim.met is wanted for claim in results.claims) for wanted in (True, False))
    title = f"<h2>{met} met, {missed} missed</h2>"
    return f'{title}<div class="claims">{_table(["claim", "claimed", "measured", ""], rows)}</div>'


def _trials(results: Results) -> str:
    names = list(dict.fromkeys(name for trial in results.trials for name in trial.figures))
    rows, chosen = [], []
    for trial in results.trials:
        cells = [_interval(Interval(*trial.figures[name])) if name in trial.figures else "" for name in names]
        rows.append([escape(trial.stage), escape(_pairs(trial.settings)), *cells, escape(trial.note)])
        chosen.append(bool(results.chosen) and trial.settings == results.chosen)
    heads = ["stage", "settings", *names, ""]
    picture = _pareto(results) if len(names) > 1 else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in results.notes)
    return (
        f"<h2>What was tried</h2><ul>{notes}</ul>"
        + picture
        + _table(heads, rows, frozenset(range(2, 2 + len(names))), chosen)
    )


def _runs(results: Results) -> str:
    kinds = figures.figures_with(figures.Limits(**results.limits))
    heads = ["system", "weights", *(f"{name} ({unit})" for name, (unit, _, _) in kinds.items()), "failed"]
    rows = []
    for name in compared(results):
        runs = results.repetitions(name)
        known = figures_of(results, name)
        precision = next(run.precision for run in results.runs if run.name == name)
        cells = [_interval(known[figure]) if figure in known else "" for figure in kinds]
        failed = sum(bool(outcome.error) for run in runs for outcome in run)
        rows.append([escape(name), escape(precision), *cells, str(failed)])
    note = "<p><small>With the interval that holds the figure with 95 % confidence (bootstrap).</small></p>"
    return "<h2>Figures</h2>" + _turned(heads, rows) + note


def _turned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of few columns and many rows, systems beside one another."""
    columns = [[head, *(row[place] for row in rows)] for place, head in enumerate(heads)]
    return _table(columns[0], columns[1:], frozenset(range(1, len(rows) + 1)))


def _interval(value: Interval) -> str:
    if not value.value:  # no answer came in more than one piece
        return "–"
    return f"{_number(value.value)}<br><small>{_number(value.low)} to {_number(value.high)}</small>"


def _number(value: float) -> str:
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def _table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: frozenset[int] = frozenset(),
    marked: Sequence[bool] = (),
) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="n">{text}</{tag}>' if place in numbers else f"<{tag}>{text}</{tag}>"
            for place, text in enumerate(texts)
        )

    head = f"<tr>{cells('th', heads)}</tr>" if heads else ""
    classes = [' class="chosen"' if place < len(marked) and marked[place] else "" for place in range(len(rows))]
    lines = "".join(f"<tr{kind}>{cells('td', row)}</tr>" for kind, row in zip(classes, rows, strict=True))
    return f"<table>{head}{lines}</table>"


# --- pictures -------------------------------------------------------------------------------------------------------


def _pictures(results: Results) -> str:
    colours = dict(zip(compared(results), COLOURS * 9, strict=False))

    def shares(of: Callable[[Sequence[Outcome]], list[float]]) -> Draw:
        def draw(axes: Axes) -> None:
            for name, colour in colours.items():
                values = samples(results, name, of)
                if values:
                    axes.step(values, [(n + 1) / len(values) for n in range(len(values))], color=colour,
                              label=name, where="post")  # fmt: skip
            axes.set(xlabel="s", ylabel="share of all", ylim=(0, 1.02))
            axes.set_xlim(left=0)

        return draw

    drawn = [_picture(title, shares(of)) for _, title, of in DISTRIBUTIONS]
    return "<h2>Distributions</h2>" + "".join(drawn) + _picture("Requests under way", _under_way(results, colours))


def compared(results: Results) -> list[str]:
    """Names of the runs that are shown beside one another: of a search, under full load, its start and its choice."""
    if results.kind != "tune":
        return results.names()
    wanted = (results.trials[0].settings, results.chosen)
    return list(dict.fromkeys(run.name for run in results.runs if run.name.startswith(FULL) and run.settings in wanted))


def samples(results: Results, name: str, of: Callable[[Sequence[Outcome]], list[float]]) -> list[float]:
    """What the answered requests of a system's runs give, in order."""
    return sorted(value for run in results.repetitions(name) for value in of(figures.good(run)))


def figures_of(results: Results, name: str) -> dict[str, Interval]:
    """A system's figures; none where nothing was answered in one of its runs."""
    answered = [figures.good(run) for run in results.repetitions(name)]
    if not all(answered):
        return {}
    kinds = figures.figures_with(figures.Limits(**results.limits))
    return {figure: interval(answered, of) for figure, (_, _, of) in kinds.items()}


def _under_way(results: Results, colours: dict[str, str]) -> Draw:
    def draw(axes: Axes) -> None:
        for name, colour in colours.items():
            run = results.repetitions(name)[0]
            moves = sorted([(one.due, 1) for one in run] + [(one.ended, -1) for one in run])
            counts, level = [], 0
            for _, change in moves:
                level += change
                counts.append(level)
            axes.step([at for at, _ in moves], counts, color=colour, label=name, where="post")
        axes.set(xlabel="seconds from the start", ylabel="requests due and not ended")
        axes.set_ylim(bottom=0)

    return draw


def _pareto(results: Results) -> str:
    """Throughput against latency of all that was tried; what nothing else beats in both is joined by a line."""
    points = points_of(results)
    if not points:
        return ""
    front = front_of([(latency, speed) for latency, speed, _ in points])

    def draw(axes: Axes) -> None:
        stages = list(dict.fromkeys(trial.stage for _, _, trial in points))
        for stage, colour in zip(stages, COLOURS * 9, strict=False):
            mine = [(latency, speed) for latency, speed, trial in points if trial.stage == stage]
            latencies, speeds = zip(*mine, strict=True)
            axes.scatter(latencies, speeds, color=colour, label=stage, s=24)
        axes.plot(*zip(*front, strict=True), color="#8888", linewidth=1)
        for latency, speed, trial in points:
            if trial.settings == results.chosen:
                axes.annotate("chosen", (latency, speed), textcoords="offset points", xytext=(6, 6))
        axes.set(xlabel="latency, 95th percentile (s)", ylabel="output tokens/s")

    return _picture("Throughput against latency", draw)


def points_of(results: Results) -> list[tuple[float, float, Trial]]:
    """Latency and throughput of each trial that has both."""
    return [
        (trial.figures["e2e_p95"][0], trial.figures["tokens_per_s"][0], trial)
        for trial in results.trials
        if {"e2e_p95", "tokens_per_s"} <= set(trial.figures)
    ]


def front_of(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (latency, throughput) pairs, those that no other beats in both (the Pareto front), by latency."""
    front: list[tuple[float, float]] = []
    for latency, speed in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or speed > front[-1][1]:
            front.append((latency, speed))
    return front


def _picture(title: str, draw: Draw) -> str:
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # The same results make the same file.
    with rc_context({"svg.hashsalt": "pagedeck", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure: Figure = Figure(figsize=(9, 3.2), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_title(title, loc="left", fontsize=11)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
        page = io.StringIO()
        FigureCanvasSVG(figure).print_svg(page, metadata={"Date": None})
    svg = page.getvalue()
    return f"<figure>{svg[svg.index('<svg') :]}</figure>"
