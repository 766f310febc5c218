"""``pagedeck config preset``: what the presets are and why, and applying one while the engine runs."""

from __future__ import annotations

from ..ipc.client import Client
from ..ipc.presets import Preset, find_preset, presets
from .settings import PATIENCE_S, describe
from .terminal import table
from .values import plain


def show() -> int:
    """Print every preset: when to use it, its values and why."""
    print("\n\n".join(_explain(preset) for preset in presets().values()))
    return 0


def apply(engine: str | None, name: str, *, dry_run: bool) -> int:
    preset = find_preset(name)
    with Client(engine) as client:
        client.timeout = PATIENCE_S
        report = client.reconfigure(preset.values, dry_run=dry_run)
    print(describe(report))
    return 0


def _explain(preset: Preset) -> str:
    rows = [[f"  {name}", plain(choice.value), choice.reason.en] for name, choice in preset.settings.items()]
    return f"{preset.name}: {preset.when.en}\n{table(rows)}"
