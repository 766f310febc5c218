"""``pagedeck bench``: measure, print a table, keep the numbers in a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bench.quick import Comparison, compare
from ..engine.config import EngineConfig
from ..engine.model.checkpoint import locate
from ..ipc.vocabulary import Refused
from .terminal import Progress, duration, table

if TYPE_CHECKING:
    from ..engine.simulator import Simulation, SimulationReport, StepCost


def quick(*, requests: int, threads: int | None, seed: int, output: str) -> int:
    if requests < 1:
        raise Refused.value("requests", requests, "an integer from 1")
    if threads is not None and threads < 1:
        raise Refused.value("threads", threads, "an integer from 1")
    if not Path(output).absolute().parent.is_dir():
        raise Refused(f"output is {output!r}; accepted is a file in a folder that exists.", field="output")
    with Progress() as progress:
        model = locate(EngineConfig(), progress).folder
        comparison = compare(model, requests=requests, threads=threads, seed=seed, report=progress)
    Path(output).write_text(json.dumps(comparison.facts(), indent=1), encoding="utf-8")
    print(render(comparison))
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


def render(comparison: Comparison) -> str:
    ours, reference = comparison.systems[:2]
    rows = [["system", "output tokens/s", "Pagedeck is", "latency P50", "P95", "same tokens as one by one"]]
    for system in comparison.systems:
        ratio = ours.tokens_per_s / system.tokens_per_s
        rows.append(
            [
                system.name,
                f"{system.tokens_per_s:.1f}",
                "" if system is ours else f"{ratio:.1f} × as fast",
                duration(system.latency(0.5)),
                duration(system.latency(0.95)),
                "" if system is reference else f"{system.agreement(reference)} of {len(comparison.items)} requests",
            ]
        )
    prompt_tokens = sum(len(item.prompt) for item in comparison.items)
    heading = (
        f"{len(comparison.items)} requests at once, {prompt_tokens:,} prompt and {ours.output_tokens:,} output tokens, "
        f"float32, greedy, {comparison.threads} threads"
    )
    return f"{heading}\n\n{table(rows, right=frozenset({1, 3, 4}))}"
