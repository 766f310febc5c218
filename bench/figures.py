"""What a load's outcomes come to: latencies, rates, and the share that was good enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from .drive import Outcome
from .workload import percentile


@dataclass(frozen=True, slots=True)
class Limits:
    """What makes an answer good: its first token within ``ttft_s``, and 95 % of its tokens within ``itl_s`` of the one
    before; a limit of none is always kept."""

    ttft_s: float | None = None
    itl_s: float | None = None

    def stated(self) -> dict[str, float]:
        return {name: limit for name, limit in asdict(self).items() if limit is not None}

    def kept(self, outcome: Outcome) -> bool:
        if outcome.error or not outcome.arrivals:
            return False
        gaps = between(outcome)
        late = self.ttft_s is not None and ttft(outcome) > self.ttft_s
        slow = self.itl_s is not None and bool(gaps) and percentile(gaps, 0.95) > self.itl_s
        return not late and not slow


def ttft(outcome: Outcome) -> float:
    """Seconds from when it was due to its first token."""
    return outcome.arrivals[0] - outcome.due


def between(outcome: Outcome) -> list[float]:
    """Seconds between its tokens."""
    return [after - before for before, after in pairwise(outcome.arrivals)]


def e2e(outcome: Outcome) -> float:
    """Seconds from when it was due to its end."""
    return outcome.ended - outcome.due


def span(outcomes: Iterable[Outcome]) -> float:
    """Seconds from the start to the last end."""
    return max(outcome.ended for outcome in outcomes)


def tokens_per_s(outcomes: Sequence[Outcome]) -> float:
    """Output tokens of all requests a second."""
    return sum(len(outcome.tokens) for outcome in outcomes) / span(outcomes)


def requests_per_s(outcomes: Sequence[Outcome]) -> float:
    return sum(not outcome.error for outcome in outcomes) / span(outcomes)


def goodput(outcomes: Sequence[Outcome], limits: Limits) -> float:
    """Requests a second that keep the limits (Zhong et al., "DistServe", OSDI 2024)."""
    return sum(limits.kept(outcome) for outcome in outcomes) / span(outcomes)


def smoothed_goodput(outcomes: Sequence[Outcome], limits: Limits) -> float:
    """Goodput with half a request more, so that it has a ratio to one in which none kept the limits (Haldane, 1955)."""
    return goodput(outcomes, limits) + 0.5 / span(outcomes)


def good(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those that were answered."""
    return [outcome for outcome in outcomes if not outcome.error and outcome.arrivals]


#: Figure -> its unit, whether more of it is better, and how outcomes make it.
FIGURES: dict[str, tuple[str, bool, Callable[[Sequence[Outcome]], float]]] = {
    "tokens_per_s": ("tokens/s", True, tokens_per_s),
    "requests_per_s": ("requests/s", True, requests_per_s),
    "ttft_p50": ("s", False, lambda all: percentile([ttft(one) for one in good(all)], 0.5)),
    "ttft_p95": ("s", False, lambda all: percentile([ttft(one) for one in good(all)], 0.95)),
    "itl_p50": ("s", False, lambda all: _gaps(all, 0.5)),
    "itl_p95": ("s", False, lambda all: _gaps(all, 0.95)),
    "itl_p99": ("s", False, lambda all: _gaps(all, 0.99)),
    "e2e_p50": ("s", False, lambda all: percentile([e2e(one) for one in good(all)], 0.5)),
    "e2e_p95": ("s", False, lambda all: percentile([e2e(one) for one in good(all)], 0.95)),
    "e2e_p99": ("s", False, lambda all: percentile([e2e(one) for one in good(all)], 0.99)),
}


def _gaps(outcomes: Sequence[Outcome], share: float) -> float:
    """A percentile over all gaps between tokens; 0 where every answer has but one."""
    gaps = [gap for outcome in good(outcomes) for gap in between(outcome)]
    return percentile(gaps, share) if gaps else 0.0


def figures_with(limits: Limits) -> dict[str, tuple[str, bool, Callable[[Sequence[Outcome]], float]]]:
    """:data:`FIGURES`, and goodput where there are limits."""
    stated = {"goodput": ("requests/s", True, lambda all: goodput(all, limits))} if limits != Limits() else {}
    return FIGURES | stated


def figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """All figures of a run in which at least one request was answered."""
    return {name: figure(outcomes) for name, (_, _, figure) in FIGURES.items()}
