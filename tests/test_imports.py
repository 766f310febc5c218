"""The floor plan, held: who may import whom, and what must stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: What each room may import of ours besides itself.
ALLOWED: dict[str, set[str]] = {
    "kernels": set(),
    "ipc": set(),
    "assets": set(),
    "engine": {"kernels", "ipc"},
    "gui": {"ipc", "assets"},
    "bench": {"ipc", "assets"},
    "commands": {"ipc", "engine", "bench"},
    "": {"ipc", "commands", "gui", "cli"},
}
#: What a folder inside a room may import besides. What no client can see (a kernel by itself, the parts of a step) is
#: measured from inside, in one folder, which the check for a bare machine with a GPU is made of.
FURTHER: dict[str, set[str]] = {"bench/inside": {"kernels", "engine"}}
#: What each room must never import of others'.
FORBIDDEN: dict[str, set[str]] = {
    "kernels": {"transformers", "zmq", "msgspec", "PySide6"},
    "ipc": {"torch", "transformers", "PySide6", "numpy"},
    "engine": {"PySide6"},
    "gui": {"torch", "transformers"},
}
#: The engine's room that speaks on the wire; everything else there runs without.
WIRED = "serving"


def sources() -> list[Path]:
    files = [*ROOT.glob("*.py")]
    for room in filter(None, ALLOWED):
        files += ROOT.joinpath(room).rglob("*.py")
    return sorted(files)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Level and module of every import statement, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from ((node.level, name) for name in names)


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_floor_plan(path: Path) -> None:
    room = room_of(path)
    depth = len(path.relative_to(ROOT).parts)
    ours = {name for name in (*ALLOWED, "pagedeck") if name}
    for level, name in imports(path):
        top = name.partition(".")[0]
        if level == 0:
            assert top not in ours, f"{name} is ours: import it relatively"
            assert top not in FORBIDDEN.get(room, set()), f"{room} must not import {name}"
        elif level == depth and top != room:
            allowed = ALLOWED[room] | FURTHER.get(path.relative_to(ROOT).parent.as_posix(), set())
            assert top in allowed or top == "__version__", f"{room or 'the root'} must not import {name}"
        assert level <= depth, f"{name} reaches out of the package"


def run(program: str, *, cwd: Path | None = None) -> str:
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=cwd, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def loaded_by(statement: str, names: set[str]) -> set[str]:
    """Those of ``names`` that are loaded once ``statement`` has run in a fresh interpreter."""
    return set(run(f"import sys\n{statement}\nprint(*({names!r} & set(sys.modules)))").split())


HEAVY = {"torch", "transformers", "PySide6", "numba", "triton"}


@pytest.mark.parametrize(
    ("statement", "never"),
    [
        ("import pagedeck.cli", HEAVY | {"zmq", "numpy", "msgspec", "httpx", "psutil"}),
        ("import pagedeck.ipc.vocabulary", HEAVY | {"zmq", "numpy", "msgspec"}),
        ("import pagedeck.ipc.client", HEAVY | {"numpy"}),
        ("import pagedeck.engine.config", HEAVY | {"zmq", "numpy", "msgspec"}),
        ("import pagedeck.engine.model.fetch", HEAVY | {"zmq", "numpy", "msgspec", "httpx"}),
        ("import pagedeck.gui.state", HEAVY),
        ("import pagedeck.bench.peers", HEAVY),
    ],
)
def test_light_imports(statement: str, never: set[str]) -> None:
    assert loaded_by(statement, never) == set()


def test_help_loads_nothing_heavy() -> None:
    statement = "from pagedeck.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\nprint('|')"
    names = HEAVY | {"zmq", "numpy", "msgspec", "httpx", "psutil"}
    said = run(f"import sys\n{statement}\nprint(*({names!r} & set(sys.modules)))")
    help_text, _, loaded = said.rpartition("|")
    assert "usage: pagedeck" in help_text
    assert loaded.split() == []


def test_the_engine_runs_without_msgspec_and_zmq() -> None:
    paths = [path.relative_to(ROOT).with_suffix("") for path in ROOT.joinpath("engine").rglob("*.py")]
    modules = ", ".join(f"pagedeck.{'.'.join(path.parts)}" for path in sorted(paths) if WIRED not in path.parts)
    run(f"import sys\nsys.modules['msgspec'] = sys.modules['zmq'] = None\nimport {modules}")


def test_kernels_imports_alone_and_loads_no_torch() -> None:
    assert run("import sys, kernels; print('torch' in sys.modules)", cwd=ROOT).strip() == "False"


def test_transformers_imports_where_our_kernels_stand_in_its_way() -> None:
    run("import transformers; from transformers import AutoModelForCausalLM, LlamaForCausalLM", cwd=ROOT)
