"""EngineConfig: every setting of the engine, what it may be, and whether it changes while requests run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ipc.vocabulary import PRIORITIES, Refused

BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
GIB = 1024**3

ALLOCATIONS = ("paged", "contiguous")

#: What the settings must be that speak of blocks which no request has for itself.
CONTIGUOUS = {"prefix_caching": False, "swap_space_gib": 0.0, "contiguous_blocks": 0}

DEFAULT_MODEL = "SmolLM2-135M-Instruct"


def setting(
    default: Any,
    meaning: str,
    *,
    unit: str = "",
    live: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[Any, ...] | None = None,
) -> Any:
    """A dataclass field that carries what a person needs to know to set it."""
    return field(
        default=default,
        metadata={
            "meaning": meaning,
            "unit": unit,
            "live": live,
            "minimum": minimum,
            "maximum": maximum,
            "choices": choices,
        },
    )


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """All settings. Immutable: a change makes another one, after :meth:`changed` has checked it.

    ``None`` means "chosen at start from the machine and the model"; the engine replaces it by what it chose.
    """

    model: str = setting(DEFAULT_MODEL, "The default model's name, a hub id, a folder with safetensors, or a GGUF file")
    load_format: str = setting(
        "auto", "Read the model's weights, or make random ones of its shape", choices=("auto", "dummy")
    )
    device: str = setting("auto", "Where the model runs", choices=("auto", "cpu", "cuda"))
    dtype: str = setting(
        "auto",
        "Precision that the model computes in; auto is float32 on the CPU and the checkpoint's own on a GPU",
        choices=("auto", "float32", "float16", "bfloat16", "float64"),
    )
    weights: str = setting(
        "auto",
        "How the CPU holds the weights of linear layers: in dtype, or rounded to 8 or 4 bits, of which fewer bytes are "
        "read for each token",
        choices=("auto", "int8", "int4"),
    )
    kv_dtype: str = setting(
        "auto",
        "How the cache holds keys and values: in dtype, or in 8 bits, so that two to four times as many tokens fit",
        choices=("auto", "int8", "fp8"),
    )
    context_length: int | None = setting(
        None, "Longest prompt plus output; none is the model's own limit", unit="tokens", minimum=16, maximum=10_000_000
    )
    memory_utilization: float | None = setting(
        None,
        "Share of the free memory given to the KV cache when num_blocks is not stated; none is 0.9 on a GPU and 0.25 "
        "on the CPU",
        minimum=0.01,
        maximum=0.98,
    )
    num_blocks: int | None = setting(
        None, "Blocks of the device pool; none is as many as memory_utilization gives at start", unit="blocks",
        live=True, minimum=1, maximum=100_000_000,
    )  # fmt: skip
    block_size: int = setting(32, "Tokens in a block of the KV cache", unit="tokens", live=True, choices=BLOCK_SIZES)
    swap_space_gib: float = setting(
        0.0, "Host memory for the KV cache of preempted requests; 0 recomputes them instead", unit="GiB", live=True,
        minimum=0.0, maximum=65_536.0,
    )  # fmt: skip
    max_batch_size: int = setting(
        64, "The most sequences in a step", unit="sequences", live=True, minimum=1, maximum=65_536
    )
    class_limits: str = setting(
        "", "The most sequences of a class in a step, as in batch=16,normal=48; a class without a number has no limit "
        "of its own", live=True,
    )  # fmt: skip
    token_budget: int | None = setting(
        None, "The most tokens in a step; prompts are prefilled in chunks that fill it. None is 2,048 on a GPU and 256 "
        "on the CPU", unit="tokens", live=True, minimum=1, maximum=1_000_000,
    )  # fmt: skip
    prefix_caching: bool = setting(
        True, "Requests with the same beginning share its blocks", live=True, choices=(True, False)
    )
    contiguous_blocks: int = setting(
        0, "Free neighbouring blocks that a growing sequence keeps ahead for itself until others need them",
        unit="blocks", live=True, minimum=0, maximum=65_536,
    )  # fmt: skip
    eviction: str = setting(
        "lru",
        "Which cached block goes first: the least recently used, or before that the one of the least urgent priority",
        live=True,
        choices=("lru", "priority"),
    )
    allocation: str = setting(
        "paged",
        "How requests get memory: blocks as they grow, or, to compare, all that they may ever need at once and in one "
        "piece, as servers without paging do",
        choices=ALLOCATIONS,
    )
    preemption: str = setting(
        "auto",
        "What happens to a request that loses its blocks: swap to the host pool, recompute, or whichever is measured "
        "to be cheaper",
        live=True,
        choices=("auto", "swap", "recompute"),
    )
    max_queue: int = setting(
        10_000, "Requests that may wait; one more is refused", unit="requests", live=True, minimum=1, maximum=10_000_000
    )
    max_clients: int = setting(
        1_000, "Clients that may be connected; one more is refused", unit="clients", live=True, minimum=1,
        maximum=100_000,
    )  # fmt: skip
    max_client_requests: int = setting(
        10_000, "Requests of one client that may run or wait; one more is refused", unit="requests", live=True,
        minimum=1, maximum=10_000_000,
    )  # fmt: skip
    threads: int | None = setting(
        None, "CPU threads of the model; none is one a core", unit="threads", minimum=1, maximum=1024
    )
    seed: int = setting(0, "Seed of random weights (load_format dummy)", minimum=0, maximum=2**63 - 1)

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            _check(spec, getattr(self, spec.name))
        if not self.model:
            raise Refused.value("model", self.model, "a name, a hub id, a folder or a GGUF file")
        parse_class_limits(self.class_limits)
        if self.allocation == "contiguous":
            self._check_contiguous()

    def _check_contiguous(self) -> None:
        """Raises :class:`Refused` for what only blocks make possible."""
        for name, value in CONTIGUOUS.items():
            if getattr(self, name) != value:
                raise Refused.value(name, getattr(self, name), f"{value} with allocation contiguous")

    def changed(self, changes: Mapping[str, Any]) -> EngineConfig:
        """A copy with live settings replaced.

        Raises:
            Refused: an unknown field, one that needs a restart, or a value out of range; names it and what is accepted.
        """
        specs = {spec.name: spec for spec in dataclasses.fields(self)}
        for name in changes:
            if name not in specs:
                live = ", ".join(n for n, s in specs.items() if s.metadata["live"])
                raise Refused(f"There is no setting {name!r}; those that change while running are {live}.", field=name)
            if not specs[name].metadata["live"]:
                raise Refused(f"{name} cannot change while the engine runs; restart it with the new value.", field=name)
            if self.allocation == "contiguous" and name in ("block_size", "num_blocks"):
                raise Refused(f"{name} cannot change while the engine runs with allocation contiguous.", field=name)
        return dataclasses.replace(self, **changes)


def parse_class_limits(text: str) -> dict[str, int]:
    """The most sequences of each class that ``text`` names.

    Raises:
        Refused: not a list of ``class=number``.
    """
    limits: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in PRIORITIES or name in limits or not (number.isdecimal() and len(number) <= 5 and int(number)):
            accepted = "class=number, separated by commas, each of interactive, normal and batch once, from 1 to 99,999"
            raise Refused.value("class_limits", text, accepted)
        limits[name] = int(number)
    return limits


def _check(spec: dataclasses.Field[Any], value: Any) -> None:
    meta = spec.metadata
    kind = str(spec.type)
    if value is None and "None" in kind:
        return
    if meta["choices"] is not None:
        # bool equals int in Python: 1 must not pass for True, nor True for 1.
        if not any(value == choice and type(value) is type(choice) for choice in meta["choices"]):
            raise Refused.value(spec.name, value, "one of " + ", ".join(str(c) for c in meta["choices"]))
        return
    unit = f" {meta['unit']}" if meta["unit"] else ""
    if kind.startswith("int"):
        if isinstance(value, bool) or not isinstance(value, int) or not meta["minimum"] <= value <= meta["maximum"]:
            raise Refused.value(spec.name, value, f"an integer from {meta['minimum']:,} to {meta['maximum']:,}{unit}")
    elif kind.startswith("float"):
        ok = isinstance(value, int | float) and not isinstance(value, bool)
        if not ok or not meta["minimum"] <= value <= meta["maximum"]:
            raise Refused.value(spec.name, value, f"a number from {meta['minimum']:,} to {meta['maximum']:,}{unit}")
    elif not isinstance(value, str):
        raise Refused.value(spec.name, value, "text")
