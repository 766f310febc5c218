"""Advice in words: what a rule says, what it measures, and how a trial went."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QCoreApplication

from .. import quantities
from ..chart import format_value
from ..i18n import QT_TRANSLATE_NOOP, fill_in
from .rule import Finding, Measurement, Quantity, Verdict
from .trial import Stage, Trial

#: By this name lupdate finds the texts.
translate = QCoreApplication.translate

_TITLES = {
    "swap": QT_TRANSLATE_NOOP("Advice", "Swap instead of computing again"),
    "pool": QT_TRANSLATE_NOOP("Advice", "A larger pool"),
    "batch": QT_TRANSLATE_NOOP("Advice", "More places in the batch"),
    "small_budget": QT_TRANSLATE_NOOP("Advice", "A larger token budget"),
    "large_budget": QT_TRANSLATE_NOOP("Advice", "A smaller token budget"),
    "prefixes": QT_TRANSLATE_NOOP("Advice", "Keep shared beginnings longer"),
    "waste": QT_TRANSLATE_NOOP("Advice", "Smaller blocks"),
    "scattered": QT_TRANSLATE_NOOP("Advice", "Larger blocks"),
    "idle_host": QT_TRANSLATE_NOOP("Advice", "Give idle host memory back"),
}

_Figure = Callable[[float], str]
_WHY: dict[str, tuple[str, tuple[tuple[str, _Figure], ...]]] = {
    "swap": (
        QT_TRANSLATE_NOOP(
            "Advice",
            "%1 preemptions a minute, and %2 of all work was done again after them. %3 of host memory would have held "
            "what was lost.",
        ),
        (("per_minute", quantities.short), ("redone", quantities.percent), ("wanted", quantities.size)),
    ),
    "pool": (
        QT_TRANSLATE_NOOP(
            "Advice",
            "In %1 of the steps a request waited for blocks, %2 requests on average, while %3 of memory lie idle. The "
            "larger pool takes %4 of it.",
        ),
        (
            ("held", quantities.percent),
            ("waiting", quantities.short),
            ("spare", quantities.size),
            ("more", quantities.size),
        ),
    ),
    "batch": (
        QT_TRANSLATE_NOOP(
            "Advice",
            "In %1 of the steps a request waited for one of the %2 places, %3 requests on average, while nobody held "
            "%4 of the blocks.",
        ),
        (
            ("held", quantities.percent),
            ("limit", quantities.count),
            ("waiting", quantities.short),
            ("free", quantities.percent),
        ),
    ),
    "small_budget": (
        QT_TRANSLATE_NOOP(
            "Advice",
            "%1 of the steps had no token to spare, so prompts took more of them; yet a step with prompts takes only "
            "%2 times as long as one without. Time to first token, P95: %3.",
        ),
        (("full", quantities.percent), ("dear", quantities.short), ("ttft", quantities.duration)),
    ),
    "large_budget": (
        QT_TRANSLATE_NOOP(
            "Advice",
            "A step with prompts takes %1 times as long as one without, and everybody's next token waits for it: the "
            "P99 of the inter-token latency is %2 times its P50.",
        ),
        (("dear", quantities.short), ("jitter", quantities.short)),
    ),
    "prefixes": (
        QT_TRANSLATE_NOOP(
            "Advice",
            "%1 of the prompts' tokens were found in the cache; yet %2 cached blocks a minute, %3, are given up for "
            "want of room. Host memory would keep them.",
        ),
        (("hits", quantities.percent), ("per_minute", quantities.count), ("lost", quantities.size)),
    ),
    "waste": (
        QT_TRANSLATE_NOOP(
            "Advice",
            "%1 of the slots in allocated blocks hold no token: a sequence has %2 tokens on average, a block %3 slots.",
        ),
        (("wasted", quantities.percent), ("tokens", quantities.count), ("size", quantities.count)),
    ),
    "scattered": (
        QT_TRANSLATE_NOOP(
            "Advice",
            "A sequence has %1 tokens on average, in %2 blocks of which only %3 lie in a row, and tokens come "
            "unevenly: the P99 of the inter-token latency is %4 times its P50.",
        ),
        (
            ("tokens", quantities.count),
            ("entries", quantities.count),
            ("run", quantities.short),
            ("jitter", quantities.short),
        ),
    ),
    "idle_host": (
        QT_TRANSLATE_NOOP(
            "Advice", "%1 of host memory are set aside for swapping, and nothing came there in %2 minutes of work."
        ),
        (("size", quantities.size), ("minutes", quantities.count)),
    ),
}
_QUANTITIES = {
    "waste": QT_TRANSLATE_NOOP("Advice", "Slots without a token"),
    "redone": QT_TRANSLATE_NOOP("Advice", "Work done again"),
    "hits": QT_TRANSLATE_NOOP("Advice", "Prompt tokens found in the cache"),
    "memory": QT_TRANSLATE_NOOP("Advice", "Memory of the engine"),
    "queue_p95": QT_TRANSLATE_NOOP("Advice", "Queue time, P95"),
    "ttft_p95": QT_TRANSLATE_NOOP("Advice", "Time to first token, P95"),
    "itl_p95": QT_TRANSLATE_NOOP("Advice", "Inter-token latency, P95"),
}
_VERDICTS = {
    Verdict.BETTER: QT_TRANSLATE_NOOP("Advice", "better"),
    Verdict.WORSE: QT_TRANSLATE_NOOP("Advice", "worse"),
    Verdict.NOISE: QT_TRANSLATE_NOOP("Advice", "within noise"),
    Verdict.OTHER_LOAD: QT_TRANSLATE_NOOP("Advice", "under another load"),
    Verdict.UNKNOWN: QT_TRANSLATE_NOOP("Advice", "not measured"),
}


def title(rule: str) -> str:
    return translate("Advice", _TITLES[rule])


def why(finding: Finding) -> str:
    """The evidence as a sentence with its figures."""
    text, figures = _WHY[finding.rule]
    return fill_in(translate("Advice", text), *(say(finding.figures[name]) for name, say in figures))


def quantity(measured: Quantity) -> str:
    return translate("Advice", _QUANTITIES[measured.key])


def before_after(measured: Quantity, before: Measurement, after: Measurement | None) -> str:
    """``1.2 s → 0.31 s``."""
    values = (before.value, after.value if after is not None else float("nan"))
    return " → ".join(format_value(value, measured.unit) for value in values)


def verdict(given: Verdict, before: Measurement, after: Measurement | None) -> str:
    text = translate("Advice", _VERDICTS[given])
    if given is not Verdict.OTHER_LOAD or after is None:
        return text
    loads = quantities.short(before.load), quantities.short(after.load)
    return f"{text} {fill_in(translate('Advice', '(%1 → %2 requests)'), *loads)}"


def stage(trial: Trial) -> str:
    """How far a trial is."""
    if trial.stage is Stage.UNDONE:
        return translate("Advice", "Undone.")
    if trial.stage is Stage.DISTURBED:
        return translate("Advice", "Another change came before enough was measured.")
    if trial.stage is Stage.MEASURED:
        text = translate("Advice", "Measured over %1 s of work before and after.")
        return fill_in(text, quantities.count(trial.before.seconds))
    done = trial.after.seconds if trial.after is not None else 0.0
    text = translate("Advice", "Measuring: %1 of %2 s of work.")
    return fill_in(text, quantities.count(done), quantities.count(trial.before.seconds))
