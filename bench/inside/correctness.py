"""Every op of the device's table against the specification, and a model's tokens against transformers' own."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from ...engine.assembly import assemble
from ...engine.config import EngineConfig
from ...ipc.vocabulary import SamplingParams
from ...kernels import Ops, PagedBatch, ops_for
from ...kernels.formats import decode, encode, pool_width
from ...kernels.reference import ReferenceOps
from ..workload import mixed
from .rows import Row
from .scale import TINY, Scale
from .timing import random

PART = "correctness"

#: The largest ‖result - reference‖ ÷ ‖reference‖ that rounding explains; the reference is in float64.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
#: Of what is rounded to 8 bits besides, where rounding before it may tip the scales.
NARROW = 4e-2

Pair = tuple[Tensor, Tensor]  # what an op made, and what it should have


@dataclass(frozen=True, slots=True)
class Bench:
    """The op table under test. Everything is made on the CPU, given to it on its device, and compared on the CPU."""

    ops: Ops
    device: torch.device
    dtype: torch.dtype
    reference: Ops = field(default_factory=ReferenceOps)

    def place(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device)

    def random(self, *shape: int, seed: int = 0) -> Tensor:
        return random(shape, self.dtype, torch.device("cpu"), seed)


@dataclass(frozen=True, slots=True)
class Attention:
    """A batch to attend in: ``queries`` and ``contexts`` are each sequence's tokens in the step and in the cache."""

    what: str
    queries: tuple[int, ...]
    contexts: tuple[int, ...]
    kv_heads: int = 8
    group: int = 4
    head_dim: int = 128
    block_size: int = 32
    pool: torch.dtype | None = None  # as the queries, if not stated
    window: int = 0
    softcap: float = 0.0
    sinks: bool = False


def decodes(what: str, *contexts: int, **shape: int | float | bool | torch.dtype) -> Attention:
    return Attention(what, (1,) * len(contexts), contexts, **shape)  # type: ignore[arg-type]


def check(scale: Scale) -> Iterator[Row]:
    """A row for each op and precision, with the worst of its cases."""
    ops = ops_for(scale.device)
    dtypes = scale.pick([torch.bfloat16, torch.float16, torch.float32], [torch.float32])
    for dtype in dtypes:
        bench = Bench(ops, scale.device, dtype)
        for name, cases in CASES.items():
            tolerance = NARROW if "narrow" in name else TOLERANCE[dtype]
            yield _row(f"{name} {_name(dtype)}", tolerance, cases(bench))
        for case in _attention_cases(scale, dtype):
            kinds = "" if case.pool is None else f", pool {_name(case.pool)}"
            what = f"paged_attention {_name(dtype)}: {case.what}{kinds}"
            yield _row(what, TOLERANCE[dtype], iter([partial(attend, bench, case)]))
    yield _tokens(scale)


def _row(what: str, tolerance: float, cases: Iterator[Callable[[], Pair]]) -> Row:
    worst = 0.0
    try:
        for case in cases:
            result, wanted = case()
            worst = max(worst, distance(result, wanted))
    except Exception:  # of one op: the others still tell whether they are right
        return Row(PART, what, error=traceback.format_exc())
    return Row(PART, what, worst, at_most=tolerance, note="relative error")


def distance(result: Tensor, wanted: Tensor) -> float:
    """‖result - wanted‖ ÷ ‖wanted‖; infinite if anything is not a number."""
    result, wanted = result.double().cpu(), wanted.double().cpu()
    error = float((result - wanted).norm() / wanted.norm().clamp_min(1e-30))
    return error if error == error else float("inf")


# --- the ops ----------------------------------------------------------------------------------------------------


def attend(bench: Bench, case: Attention) -> Pair:
    """Over a pool of shuffled blocks, in which every slot that must not be read is poisoned."""
    generator = torch.Generator().manual_seed(len(case.contexts))
    size, stored = case.block_size, case.pool or bench.dtype
    needed = [-(-context // size) for context in case.contexts]
    blocks = torch.randperm(sum(needed) + 2, generator=generator)
    width = pool_width(case.head_dim, stored)
    pool = torch.full((2, len(blocks) * size, case.kv_heads, width), 127, dtype=torch.uint8).to(torch.int8)
    pool = pool if stored == torch.int8 else torch.full(pool.shape, float("nan"), dtype=torch.float32).to(stored)
    tables = torch.full((len(needed), max(needed) + 1), 2**31 - 1, dtype=torch.int32)
    first = 0
    for row, (count, context) in enumerate(zip(needed, case.contexts, strict=True)):
        own = blocks[first : first + count]
        first += count
        tables[row, :count] = own
        position = torch.arange(context)
        slots = own[position // size] * size + position % size
        values = torch.randn((2, context, case.kv_heads, case.head_dim), generator=generator).to(bench.dtype)
        _bytes(pool)[:, slots] = _bytes(encode(values, stored))
    starts = torch.tensor([0, *torch.tensor(case.queries).cumsum(0).tolist()], dtype=torch.int32)
    batch = PagedBatch(
        query_start=starts,
        context_len=torch.tensor(case.contexts, dtype=torch.int32),
        block_tables=tables,
        slots=torch.full((int(starts[-1]),), -1),
        block_size=size,
        decodes=sum(1 for count in case.queries if count == 1),
        max_context=max(case.contexts),
    )
    query = bench.random(int(starts[-1]), case.kv_heads * case.group, case.head_dim, seed=1)
    sinks = bench.random(case.kv_heads * case.group, seed=2) if case.sinks else None
    options = {"scale": case.head_dim**-0.5, "window": case.window, "softcap": case.softcap}
    placed = replace(
        batch,
        query_start=bench.place(batch.query_start),
        context_len=bench.place(batch.context_len),
        block_tables=bench.place(batch.block_tables),
        slots=bench.place(batch.slots),
    )
    result = bench.ops.paged_attention(
        bench.place(query), bench.place(pool), placed, sinks=None if sinks is None else bench.place(sinks), **options
    )
    precise = pool if stored in (torch.int8, torch.float8_e4m3fn) else pool.double()
    wanted = bench.reference.paged_attention(
        query.double(), precise, batch, sinks=None if sinks is None else sinks.double(), **options
    )
    return result, wanted


def _attention_cases(scale: Scale, dtype: torch.dtype) -> list[Attention]:
    lengths = scale.pick((1, 31, 33, 257, 1000, 4097), (1, 33, 100))
    chunks = scale.pick(((1, 5, 70, 300, 513), (40, 5, 200, 300, 2000)), ((1, 5, 30), (40, 5, 60)))
    prompt = Attention("prompt chunks", *chunks)
    cases = [
        decodes("decodes", *lengths),
        decodes("decodes, the batch padded", 5, 300, 0, 0),
        prompt,
        decodes("few long decodes", *scale.pick((20_000, 5), (700,))),
    ]
    if dtype != torch.bfloat16 and not scale.small:
        return cases
    for heads, group, width in ((8, 4, 64), (3, 3, 64), (2, 1, 80), (1, 16, 128), (4, 2, 256)):
        shape = {"kv_heads": heads, "group": group, "head_dim": width}
        label = f"{heads * group} heads on {heads}, {width} wide"
        cases += [decodes(f"decodes, {label}", *lengths, **shape)]
        cases += [replace(prompt, what=f"prompt chunks, {label}", **shape)]  # type: ignore[arg-type]
    for label, variant in {
        "window": {"window": 50},
        "softcap": {"softcap": 3.0},
        "sinks": {"sinks": True},
        "window, softcap and sinks": {"window": 50, "softcap": 3.0, "sinks": True},
        "blocks of 8": {"block_size": 8},
        "blocks of 256": {"block_size": 256},
        "narrow": {"pool": torch.float8_e4m3fn},
        "integers": {"pool": torch.int8},
    }.items():
        cases += [decodes(f"decodes, {label}", *lengths, **variant)]  # type: ignore[arg-type]
        cases += [replace(prompt, what=f"prompt chunks, {label}", **variant)]  # type: ignore[arg-type]
    return cases


Cases = Callable[[Bench], Iterator[Callable[[], Pair]]]

NARROW_POOLS = (torch.float8_e4m3fn, torch.int8)
HEADS, KV_HEADS, WIDTH, LAYERS, TOKENS = 8, 2, 64, 3, 37


def _writes(bench: Bench, *pools: torch.dtype, rotated: bool) -> Iterator[Callable[[], Pair]]:
    """Rows of one wide projection, some of them padding, to pools of these kinds, or of the projection's own."""
    slots = torch.randperm(100)[:TOKENS]
    slots[::5] = -1
    wide = bench.random(TOKENS, HEADS + 2 * KV_HEADS, WIDTH + 8)
    query, key, value = (part[..., :WIDTH] for part in wide.split([HEADS, KV_HEADS, KV_HEADS], dim=1))
    angles = torch.rand(TOKENS, WIDTH) * 7
    cos, sin = angles.cos().to(bench.dtype), angles.sin().to(bench.dtype)
    placed = bench.place(wide)
    q, k, v = (part[..., :WIDTH] for part in placed.split([HEADS, KV_HEADS, KV_HEADS], dim=1))

    def write(stored: torch.dtype) -> Pair:
        shape = (2, 100, KV_HEADS, pool_width(WIDTH, stored))
        pool = torch.zeros(shape, dtype=torch.int8 if stored == torch.int8 else torch.float32).to(stored)
        mine = bench.place(pool.clone())
        parts = []
        if rotated:
            parts.append(bench.ops.rotate_and_write_kv(
                q, k, v, bench.place(cos), bench.place(sin), mine, bench.place(slots)
            ).cpu())  # fmt: skip
            wanted = [bench.reference.rotate_and_write_kv(
                query.float(), key.float(), value.float(), cos.float(), sin.float(), pool, slots
            )]  # fmt: skip
        else:
            bench.ops.write_kv(k, v, mine, bench.place(slots))
            bench.reference.write_kv(key, value, pool, slots)
            wanted = []
        parts.append(decode(mine.cpu(), WIDTH))
        wanted.append(decode(pool, WIDTH))
        return _joined(parts), _joined(wanted)

    for stored in pools or (bench.dtype,):
        yield partial(write, stored)


def _rms_norm(bench: Bench) -> Iterator[Callable[[], Pair]]:
    weight = bench.random(4096, seed=1)

    def norm(width: int, with_residual: bool) -> Pair:
        x, residual = bench.random(TOKENS, width), bench.random(TOKENS, width, seed=2) if with_residual else None
        mine = None if residual is None else bench.place(residual.clone())
        result = bench.ops.rms_norm(bench.place(x), bench.place(weight[:width]), 1e-5, mine)
        precise = None if residual is None else residual.double()
        wanted = bench.reference.rms_norm(x.double(), weight[:width].double(), 1e-5, precise)
        if mine is None or precise is None:
            return result, wanted
        return _joined([result, mine]), _joined([wanted, precise])

    for width in (64, 576, 4096):
        for with_residual in (False, True):
            yield partial(norm, width, with_residual)


def _silu_mul(bench: Bench) -> Iterator[Callable[[], Pair]]:
    def gate(width: int) -> Pair:
        both = bench.random(TOKENS, 2 * width) * 3
        return bench.ops.silu_mul(bench.place(both)), bench.reference.silu_mul(both.double())

    for width in (48, 1536, 14_336):
        yield partial(gate, width)


def _pool(bench: Bench, slots: int) -> Tensor:
    return bench.random(LAYERS, 2, slots, KV_HEADS, WIDTH)


def _copies(bench: Bench) -> Iterator[Callable[[], Pair]]:
    def copy(size: int) -> Pair:
        pool = _pool(bench, 6 * size + 5)
        source, target = torch.tensor([4, 0, 4]), torch.tensor([1, 5, 2])
        mine = bench.place(pool.clone())
        bench.ops.copy_blocks(mine, bench.place(source), bench.place(target), size)
        bench.reference.copy_blocks(pool, source, target, size)
        return mine, pool

    for size in (8, 32):
        yield partial(copy, size)


def _moves(bench: Bench) -> Iterator[Callable[[], Pair]]:
    def move() -> Pair:
        pool = _pool(bench, 40)
        source, target = torch.tensor([0, 1, 2, *range(10, 30)]), torch.tensor([1, 2, 0, *range(13, 33)])
        mine = bench.place(pool.clone())
        bench.ops.move_slots(mine, bench.place(source), bench.place(target))
        bench.reference.move_slots(pool, source, target)
        return mine, pool

    yield move


def _swaps(bench: Bench, back: bool) -> Iterator[Callable[[], Pair]]:
    """Blocks in a run and alone, to the host pool, and for ``back`` from there to other blocks."""

    def swap() -> Pair:
        size = 8
        pool = _pool(bench, 12 * size + 3)
        pinned = bench.device.type == "cuda"
        host = torch.zeros((9 * size, LAYERS, 2, KV_HEADS, WIDTH), dtype=bench.dtype, pin_memory=pinned)
        mine, my_host = bench.place(pool.clone()), torch.zeros_like(host, pin_memory=pinned)
        blocks, others = torch.tensor([3, 4, 5, 11, 0]), torch.tensor([9, 10, 2, 7, 8])
        places = torch.tensor([6, 7, 8, 2, 1])
        bench.ops.gather_blocks(mine, bench.place(blocks), size, my_host, places)
        bench.reference.gather_blocks(pool, blocks, size, host, places)
        if back:
            bench.ops.scatter_blocks(my_host, places, size, mine, bench.place(others))
            bench.reference.scatter_blocks(host, places, size, pool, others)
        if pinned:
            torch.cuda.synchronize()
        return (mine, pool) if back else (my_host, host)

    yield swap


#: Every op of the table but attention and warm_up, by its name and what is special.
CASES: dict[str, Cases] = {
    "write_kv": lambda bench: _writes(bench, rotated=False),
    "write_kv, narrow": lambda bench: _writes(bench, *NARROW_POOLS, rotated=False),
    "rotate_and_write_kv": lambda bench: _writes(bench, rotated=True),
    "rotate_and_write_kv, narrow": lambda bench: _writes(bench, *NARROW_POOLS, rotated=True),
    "rms_norm": _rms_norm,
    "silu_mul": _silu_mul,
    "copy_blocks": _copies,
    "move_slots": _moves,
    "gather_blocks": lambda bench: _swaps(bench, back=False),
    "scatter_blocks": lambda bench: _swaps(bench, back=True),
}


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.double().cpu().flatten() for part in parts])


def _bytes(pool: Tensor) -> Tensor:
    """The same memory in a type that can be indexed."""
    return pool.view(torch.uint8) if pool.dtype == torch.float8_e4m3fn else pool


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- a whole model ----------------------------------------------------------------------------------------------


def _tokens(scale: Scale) -> Row:
    """The same greedy tokens as transformers.generate, from the same random weights, in float32."""
    from transformers import AutoModelForCausalLM

    from ..baselines import generate

    folder = TINY.write(scale.folder)
    made = assemble(
        EngineConfig(
            model=str(folder), load_format="dummy", device=scale.device.type, dtype="float32", num_blocks=200,
            token_budget=64,
        ),
        lambda *_: None,
    )  # fmt: skip
    items = mixed(12, seed=1, vocabulary=TINY.vocabulary, prompts=(2, 150), outputs=(4, 30))
    outputs: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        sampling = SamplingParams(max_tokens=item.output_tokens, temperature=0.0, ignore_eos=True)
        made.engine.submit(id=str(number), prompt=item.prompt, sampling=sampling, priority="normal")
    while made.engine.has_work:
        for output in made.engine.step().outputs:
            outputs.setdefault(output.request.id, []).extend(output.token_ids)
    config = made.model.model.config
    with torch.random.fork_rng(), torch.device(scale.device):
        torch.manual_seed(made.config.seed)
        plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    plain.generation_config.eos_token_id = None
    same = 0
    for number, item in enumerate(items):
        same += outputs[str(number)] == generate(plain.eval(), [(item.prompt, item.output_tokens)])[0]
    return Row(
        PART, "requests with transformers' own tokens, float32", same / len(items), "%", at_least=1.0,
        note=f"{len(items)} requests",
    )  # fmt: skip
