"""Are the kernels right and is the engine fast on this machine's GPU? One table, in at most eight minutes.

    python bench/gpu_check.py [--output gpu-check.json] [--parts correctness,decode] [--small]

needs torch, triton, transformers, numpy, numba and psutil, a checkout of the repository under whatever name, and
nothing else: no installation, no network, no weights (models of Llama's shapes get random ones). Each part runs in a
process of its own with a limit of its own, so that one that fails, hangs or breaks the device takes no other with it.
``--small`` runs everything in little in this very process, on the CPU where there is no GPU: that proves that it runs,
and its speeds mean nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: threads that spin slow each other down

if __name__ == "__main__" and not __package__:
    # A plain file in a folder that may have any name: make it the package, and take this module from there. Python put
    # this folder on its path, where no library must find a module of ours instead of its own.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() not in (ROOT, ROOT / "bench")]
    _spec = importlib.util.spec_from_file_location(
        "pagedeck", ROOT / "__init__.py", submodule_search_locations=[str(ROOT)]
    )
    assert _spec and _spec.loader
    sys.modules["pagedeck"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["pagedeck"])
    sys.exit(importlib.import_module("pagedeck.bench.gpu_check").main())

if TYPE_CHECKING:
    from .inside.rows import Row

TOTAL_S = 480.0
#: The parts, and the longest that each may take (seconds).
LIMITS = {
    "correctness": 120.0,
    "decode": 60.0,
    "prefill": 60.0,
    "swap": 45.0,
    "repage": 45.0,
    "step": 100.0,
    "serving": 180.0,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if every aim is reached, 1 if not."""
    parser = argparse.ArgumentParser(prog="gpu_check", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--parts", default=",".join(LIMITS), help="some of %(default)s")
    parser.add_argument("--output", default="gpu-check.json", help="where results go (default %(default)s)")
    parser.add_argument("--small", action="store_true", help="all of it in little, also on a CPU")
    parser.add_argument("--part", choices=list(LIMITS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part:
        for row in rows(options.part, small=options.small):
            print(json.dumps(asdict(row)), flush=True)
        return 0
    parts = [part for part in options.parts.split(",") if part]
    if unknown := set(parts) - LIMITS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(LIMITS)}")
    found: list[Row] = []
    begin = time.perf_counter()
    print(f"{'part':<12}{'what':<50}{'aim':>10}{'measured':>16}  verdict", flush=True)
    for part in parts:
        left = TOTAL_S - (time.perf_counter() - begin)
        made = rows(part, small=True) if options.small else isolated(part, min(LIMITS[part], left))
        for row in made:
            found.append(row)
            if part != "correctness" or not row.good:  # of what is right, the count says enough
                print(line(row), flush=True)
    facts = {
        "seconds": time.perf_counter() - begin,
        "small": options.small,
        **surroundings(),
        "rows": [{**asdict(row), "good": row.good} for row in found],
    }
    Path(options.output).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    print(summary(found, facts))
    return 0 if all(row.good is not False for row in found) else 1


def rows(part: str, *, small: bool) -> Iterator[Row]:
    """What a part finds, as it finds it; its failure is the last row."""
    from .inside.rows import Row

    try:
        import torch

        from .inside.scale import Scale

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if device.type == "cpu" and not small:
            raise RuntimeError("there is no GPU that torch can use; --small runs on a CPU")
        with tempfile.TemporaryDirectory() as folder:
            yield from _check(part)(Scale(small, device, Path(folder)))
    except Exception:
        yield Row(part, "the part as a whole", error=traceback.format_exc())


def _check(part: str) -> Any:
    from .inside import attention_speed, copies, correctness, serving_speed, step_speed

    return {
        "correctness": correctness.check,
        "decode": attention_speed.decode,
        "prefill": attention_speed.prefill,
        "step": step_speed.step,
        "serving": serving_speed.serving,
        "swap": copies.swap,
        "repage": copies.repage,
    }[part]


def isolated(part: str, limit_s: float) -> Iterator[Row]:
    """A part's rows from a process of its own, which is ended after ``limit_s`` seconds."""
    from .inside.rows import Row

    if limit_s <= 0:
        yield Row(part, "the part as a whole", error=f"not run: all parts together have {TOTAL_S:.0f} s")
        return
    command = [sys.executable, __file__, "--part", part]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as child,
    ):
        assert child.stdout
        late = threading.Event()

        def end() -> None:
            late.set()
            child.kill()

        alarm = threading.Timer(limit_s, end)
        alarm.start()
        for line in child.stdout:
            if line.startswith("{"):  # libraries may print, too
                yield Row(**json.loads(line))
        child.wait()
        alarm.cancel()
        said.seek(0)
        if late.is_set():
            yield Row(part, "the part as a whole", error=f"ended after {limit_s:.0f} s")
        elif child.returncode:
            error = f"ended with exit code {child.returncode}: {said.read()[-2000:]}"
            yield Row(part, "the part as a whole", error=error)


# --- words ------------------------------------------------------------------------------------------------------


def line(row: Row) -> str:
    from .inside.rows import show

    if row.error:
        return f"{row.part:<12}{row.what}: {row.error.strip()}"
    verdict = {True: "good", False: "MISSED", None: ""}[row.good]
    measured = "" if row.measured is None else show(row.measured, row.unit)
    return f"{row.part:<12}{row.what:<50}{row.aim:>10}{measured:>16}  {verdict:<8}{row.note}".rstrip()


def summary(found: list[Row], facts: dict[str, Any]) -> str:
    good, missed = (sum(row.good is verdict for row in found) for verdict in (True, False))
    right = sum(row.part == "correctness" and row.good is True for row in found)
    text = (
        f"{right} results are right. Of all aims {good} reached, {missed} missed; {facts['seconds']:.0f} s on "
        f"{facts['device']}, torch {facts['torch']}."
    )
    return f"{text} Small: speeds mean nothing." if facts["small"] else text


def surroundings() -> dict[str, Any]:
    """What results depend on."""
    import importlib.metadata

    def version(name: str) -> str | None:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None

    import torch

    usable = torch.cuda.is_available()
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "device": torch.cuda.get_device_name() if usable else "the CPU",
        "python": sys.version.split()[0],
        **{name: version(name) for name in ("torch", "triton", "transformers", "numpy")},
    }


if __name__ == "__main__":
    sys.exit(main())
