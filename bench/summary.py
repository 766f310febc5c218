"""What a viewer shows of a file of results: figures, curves and points, ready to be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from .figures import Limits, figures_with
from .noise import Interval
from .report import DISTRIBUTIONS, figures_of, front_of, points_of, samples
from .results import FULL, Results

#: A curve of more points is thinned out.
POINTS = 400


def summary_of(results: Results) -> dict[str, Any]:
    """Of a search for settings, only the start and what was chosen are told as systems; all else are trials."""
    names = [name for name in results.names() if results.kind != "tune" or _role(results, name)]
    points = [(latency, speed) for latency, speed, _ in points_of(results)]
    return {
        "kind": results.kind,
        "surroundings": results.surroundings,
        "load": results.load,
        "notes": results.notes,
        "figures": {
            name: {"unit": unit, "more_is_better": more}
            for name, (unit, more, _) in figures_with(Limits(**results.limits)).items()
        },
        "limits": results.limits,
        "systems": [_system(results, name) for name in names],
        "claims": [_without_samples(msgspec.to_builtins(claim)) for claim in results.claims],
        "trials": [
            {
                "stage": trial.stage,
                "settings": trial.settings,
                "figures": trial.figures,
                "chosen": trial.stage == FULL and trial.settings == results.chosen,
            }
            for trial in results.trials
        ],
        "front": front_of(points),
        "measured": len(results.runs),
        "chosen": results.chosen,
        "objective": results.objective,
        "gain": results.gain,
        "changed": [
            {"setting": c.setting, "before": c.before, "after": c.after, "gain": c.gain, "stage": c.stage}
            for c in results.changed
        ],
    }


def _system(results: Results, name: str) -> dict[str, Any]:
    runs = [run for run in results.runs if run.name == name]
    return {
        "name": name,
        "role": _role(results, name),
        "precision": runs[0].precision,
        "runs": len(runs),
        "failed": sum(bool(outcome.error) for run in runs for outcome in run.outcomes),
        "figures": {figure: _ends(value) for figure, value in figures_of(results, name).items()},
        "engine": next((run.engine for run in runs if run.engine), {}),
        "curves": {key: _curve(samples(results, name, of)) for key, _, of in DISTRIBUTIONS},
    }


def _role(results: Results, name: str) -> str:
    """Whether a trial under the full load is the ``start`` of the search or what was ``chosen``."""
    if results.kind != "tune" or not results.chosen:
        return ""
    full = [run for run in results.runs if run.name.startswith(f"{FULL}: ")]
    settings = next((run.settings for run in full if run.name == name), None)
    if settings is None:
        return ""
    return "start" if settings == full[0].settings else "chosen" if settings == results.chosen else ""


def _ends(value: Interval) -> list[float]:
    return [value.value, value.low, value.high]


def _curve(values: Sequence[float]) -> list[list[float]]:
    """Values in order, and the share of all that is no larger than each; the smallest and the largest are kept."""
    last = len(values) - 1
    step = max(1, last / (POINTS - 1)) if last > 0 else 1
    places = sorted({min(last, round(n * step)) for n in range(min(len(values), POINTS))} | {last}) if values else []
    return [[values[place] for place in places], [(place + 1) / len(values) for place in places]]


def _without_samples(claim: dict[str, Any]) -> dict[str, Any]:
    return {"spread": "", **{name: value for name, value in claim.items() if name != "samples"}}
