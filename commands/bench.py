"""``pagedeck bench``: measure, print a table, keep the numbers in a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bench import peers as others
from ..bench import report as page
from ..bench import results, variants
from ..bench import scaling as scales
from ..bench.figures import figures as all_figures
from ..bench.figures import tokens_per_s
from ..bench.peers import Others
from ..bench.results import Results, Run
from ..bench.shape import shape_of
from ..bench.surroundings import surroundings
from ..bench.workload import mixed
from ..engine.config import EngineConfig
from ..engine.model.checkpoint import locate
from ..ipc.vocabulary import Refused
from .terminal import Progress, duration, size, table
from .values import parse_value

if TYPE_CHECKING:
    from ..bench.inside.step_profile import StepParts
    from ..engine.simulator import Simulation, SimulationReport, StepCost

OURS = "pagedeck"
QUICK_PEERS = ("one-by-one", "static")
QUICK_OUTPUTS = (16, 128)  # tokens
OUTPUTS = (16, 256)


def quick(*, requests: int, threads: int | None, seed: int, output: str) -> int:
    return _side_by_side(QUICK_PEERS, QUICK_OUTPUTS, Others(), requests, threads, seed, [], output)


def peers(
    *,
    chosen: str | None,
    requests: int,
    threads: int | None,
    seed: int,
    settings: list[str],
    openvino_model: str | None,
    openvino_python: str,
    openvino_precision: str,
    llama_url: str | None,
    llama_precision: str,
    output: str,
) -> int:
    """``chosen``: keys of the peers to run, separated by commas; all that can be reached unless stated.
    ``settings``: ``name=value`` of our engine."""
    reach = Others(openvino_model, openvino_python, openvino_precision, llama_precision)
    offered = {name: name for name in others.names(reach)} | ({"llama": llama_url} if llama_url else {})
    keys = list(offered) if chosen is None else [key.strip() for key in chosen.split(",") if key.strip()]
    if unknown := [key for key in keys if key not in offered]:
        accepted = f"{', '.join(offered)}; openvino needs --openvino-model, and llama needs --llama-url"
        raise Refused.value("peers", unknown[0], accepted)
    names = [offered[key] for key in keys]
    return _side_by_side(names, OUTPUTS, reach, requests, threads, seed, settings, output)


def _side_by_side(
    names: Sequence[str],
    outputs: tuple[int, int],
    reach: Others,
    requests: int,
    threads: int | None,
    seed: int,
    settings: list[str],
    output: str,
) -> int:
    """This engine and others on requests of mixed lengths that are all there at the start, one system after the
    other."""
    check_output(output, requests=requests, threads=threads)
    chosen = [pair(setting) for setting in settings]
    threads = threads or os.cpu_count() or 1
    load = {"name": "mixed lengths at once", "requests": requests, "seed": seed, "threads": threads}
    found = results.new("peers", load=load)
    with Progress() as progress:
        model = locate(EngineConfig(), progress).folder
        items = mixed(requests, seed=seed, vocabulary=shape_of(model).vocabulary, outputs=outputs)
        with kept(found, output):
            for name in (OURS, *names):
                found.runs.append(
                    variants.measure(
                        name, model, items, threads=threads, settings=chosen, others=reach, report=progress
                    )
                )
                results.write(found, Path(output))
    page.write(found, beside := Path(output).with_suffix(".html"))
    print(render(found))
    print(f"All samples: {output}; with pictures: {beside}")
    return 0


@contextmanager
def kept(found: Results, output: str) -> Iterator[None]:
    """Where Ctrl-C ends a measurement, say what was measured by then."""
    try:
        yield
    except KeyboardInterrupt:
        names = ", ".join(found.names())
        told = f"{output} has what was measured: {names}" if names else "nothing was measured yet"
        print(f"\nInterrupted; {told}.", file=sys.stderr)
        raise


def scaling(*, threads: int | None, settings: list[str], output: str) -> int:
    check_output(output, threads=threads)
    with Progress() as progress:
        model = locate(EngineConfig(), progress).folder
        options = [part for setting in settings for part in option(setting)]
        found = scales.measure(model, threads=threads or os.cpu_count() or 1, report=progress, settings=options)
    return _finish(found.facts(), render_scaling(found), output)


def profile(*, threads: int | None, settings: list[str], output: str) -> int:
    """Runs an engine in this process."""
    from ..bench.inside import step_profile

    check_output(output, threads=threads)
    chosen = engine_settings(settings)
    with Progress() as progress:
        steps = step_profile.profile(EngineConfig(threads=threads, **chosen), progress)
    return _finish({**surroundings(), "steps": [asdict(step) for step in steps]}, render_profile(steps), output)


def engine_settings(settings: list[str]) -> dict[str, Any]:
    """What ``name=value`` says, as ``pagedeck serve`` would understand it."""
    kinds = {spec.name: spec.type for spec in fields(EngineConfig)}
    chosen = {}
    for name, text in map(_name_and_value, settings):
        if name not in kinds:
            raise Refused.value("setting", name, f"one of {', '.join(kinds)}")
        chosen[name] = text if kinds[name] == "str" else parse_value(text)
    return chosen


def option(setting: str) -> tuple[str, str]:
    name, value = _name_and_value(setting)
    return f"--{name.replace('_', '-')}", value


def pair(setting: str) -> tuple[str, str]:
    """A setting's name as the command line has it, and its value."""
    name, value = option(setting)
    return name.removeprefix("--"), value


def _name_and_value(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals or not name:
        raise Refused.value("setting", setting, "name=value, as `pagedeck serve --help` lists them")
    return name.replace("-", "_"), value


def check_output(output: str, **counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise Refused.value(name, count, "an integer from 1")
    if not Path(output).absolute().parent.is_dir():
        raise Refused(f"output is {output!r}; accepted is a file in a folder that exists.", field="output")


def _finish(facts: dict[str, Any], text: str, output: str) -> int:
    Path(output).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    print(text)
    print(f"All numbers: {output}")
    return 0


def simulate(*, as_json: bool, **chosen: Any) -> int:
    """Run the scheduler and the cache on a simulated device, then measure what a step costs them."""
    from ..engine.simulator import Simulation, step_costs
    from ..engine.simulator import simulate as run

    simulation = Simulation(**chosen)
    simulation.check()
    with Progress() as progress:
        report = run(simulation, progress)
        progress("Steps of 256 and 2,000 sequences, pools of 10,000 and 1,000,000 blocks", None)
        costs = step_costs(256, [10_000, 1_000_000]) + step_costs(2_000, [100_000])
    if as_json:
        costs_facts = [asdict(cost) for cost in costs]
        print(json.dumps({"simulation": asdict(simulation), **report.facts(), "step_costs": costs_facts}, indent=1))
    else:
        print(render_simulation(simulation, report, costs))
    return 0


def render_simulation(simulation: Simulation, report: SimulationReport, costs: list[StepCost]) -> str:
    rows = [
        ["requests", f"{report.requests:,} in {report.steps:,} steps; {report.running_mean:,.0f} sequences in a step, "
         f"{report.running_most:,} at most"],
        ["time", f"{duration(report.virtual_s)} on the simulated device, {duration(report.wall_s)} here"],
        ["allocated", f"{report.allocated:.1%} of {simulation.num_blocks:,} blocks; most {report.allocated_most:.1%}"],
        ["filled", f"{report.filled:.1%} of the allocated slots; {report.wasted_blocks:.2f} blocks a sequence wasted"],
        ["prefix cache", f"{report.prefix_hits:.1%} of the prompt tokens were in the cache"],
        ["preemptions", f"{report.preemptions:,}, of them {report.swaps:,} to the host pool"],
        ["thrash", f"{report.thrash:.2%}: {report.redone_tokens:,} of {report.computed_tokens:,} tokens ran again"],
        ["scheduling", f"{report.schedule_us_p50:,.0f} µs a step (P99 {report.schedule_us_p99:,.0f}); all of the core "
         f"{report.core_us_p50:,.0f} µs (P99 {report.core_us_p99:,.0f})"],
        ["fairness", f"Jain index {report.jain:.2f} over all requests"],
    ]  # fmt: skip
    classes = [["class", "requests", "waited (mean)", "P50", "P95", "P99", "Jain index"]]
    for name, fared in report.classes.items():
        waits = (fared.waiting_mean_s, fared.waiting_p50_s, fared.waiting_p95_s, fared.waiting_p99_s)
        classes.append([name, f"{fared.requests:,}", *map(duration, waits), f"{fared.jain:.2f}"])
    steps = [["sequences", "blocks", "scheduling P50", "P99", "all of the core P50", "P99"]]
    for cost in costs:
        times = (cost.schedule_us_p50, cost.schedule_us_p99, cost.core_us_p50, cost.core_us_p99)
        steps.append([f"{cost.running:,}", f"{cost.num_blocks:,}", *(f"{time:,.0f} µs" for time in times)])
    small, large = costs[0], costs[1]
    ratio = large.schedule_us_p50 / small.schedule_us_p50
    numbers = frozenset(range(1, 7))
    return "\n\n".join(
        [
            "\n".join(f"{title:<14}{text}" for title, text in rows),
            table(classes, right=numbers),
            table(steps, right=numbers),
            f"From {small.num_blocks:,} to {large.num_blocks:,} blocks, scheduling takes {ratio:.2f} × as long.\n"
            "Scheduling is choosing, making room and preempting; all of the core is a step without the device. Both "
            "are processor time of this machine.",
        ]
    )


def render(found: Results) -> str:
    ours = found.runs[0]
    rows = [["system", "weights", "output tokens/s", "Pagedeck is", "latency P50", "P95", "between tokens P50", "P95",
             "memory", "same tokens"]]  # fmt: skip
    for run in found.runs:
        figures = all_figures(run.outcomes)
        ratio = tokens_per_s(ours.outcomes) / figures["tokens_per_s"]
        same = _same_tokens(run, ours)
        rows.append(
            [
                "Pagedeck" if run is ours else others.title(run.name),
                run.precision,
                f"{figures['tokens_per_s']:.1f}",
                "" if run is ours else f"{ratio:.2f} × as fast",
                *(duration(figures[name]) for name in ("e2e_p50", "e2e_p95")),
                *(duration(figures[name]) if figures[name] else "" for name in ("itl_p50", "itl_p95")),
                "" if run.memory_bytes is None else size(run.memory_bytes),
                "" if run is ours or same is None else f"{same} of {len(run.outcomes)}",
            ]
        )
    prompts, outputs = (
        sum(len(one.tokens) if outputs else one.prompt_tokens for one in ours.outcomes) for outputs in (False, True)
    )
    heading = (
        f"{len(ours.outcomes)} requests at once, {prompts:,} prompt and {outputs:,} output tokens, greedy, "
        f"{found.load['threads']} threads"
    )
    notes = (
        "Latency is from the start to a request's last token; memory the most that the process held while it served "
        "(mapped weights included); same tokens are requests whose output is Pagedeck's, token for token."
    )
    return f"{heading}\n\n{table(rows, right=frozenset(range(2, 10)))}\n\n{notes}"


def _same_tokens(run: Run, other: Run) -> int | None:
    """How many requests have the very same output in both, where both tell the tokens: servers tell texts."""
    if others.is_server(run.name):
        return None
    return sum(mine.tokens == theirs.tokens for mine, theirs in zip(run.outcomes, other.outcomes, strict=True))


def render_scaling(found: scales.Scaling) -> str:
    titles = ["step", "forward", "sampling", "scheduling", "rest", "between steps", "not forward"]
    batches = [["batch", "tokens/s", *titles]]
    for point in found.batches:
        batches.append([f"{point.batch}", f"{point.tokens_per_s:,.1f}", *_split(point)])
    contexts = [["context", "attention", *titles]]
    for point in found.contexts:
        contexts.append([f"{point.context:,}", f"{found.attention(point.context):.1%}", *_split(point)])
    numbers = frozenset(range(9))
    heading = f"Steps of one token a sequence, milliseconds (median), {found.threads} threads"
    notes = (
        "Attention's share is what a line through the step times says of a context; the line explains "
        f"{found.linearity:.2%} of how they vary."
    )
    return "\n\n".join([heading, table(batches, right=numbers), table(contexts, right=numbers), notes])


def _split(point: scales.StepTime) -> list[str]:
    parts = (point.step_ms, point.forward_ms, point.sample_ms, point.schedule_ms, point.other_ms, point.between_ms)
    return [*(f"{part:.2f}" for part in parts), f"{point.outside:.1%}"]


def render_profile(steps: list[StepParts]) -> str:
    from ..bench.inside.step_profile import part_names

    rows = [["part", *(text for step in steps for text in (f"batch {step.batch}", ""))]]
    for name in ("step", "forward", *part_names()):
        values = [(getattr(step, name), step.step) for step in steps]
        cells = [text for value, whole in values for text in (f"{value:.2f} ms", f"{value / whole:.1%}")]
        rows.append([name.replace("_", " "), *cells])
    notes = [
        f"Batch {step.batch}: {step.outside:.1%} is outside the forward; beyond products and attention, this takes "
        f"{step.over_products:.1%} of the products' time."
        for step in steps
    ]
    return "\n\n".join([table(rows, right=frozenset(range(1, 2 * len(steps) + 1))), "\n".join(notes)])
