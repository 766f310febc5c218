"""``pagedeck config``: what the engine's settings are, and changing them while it runs."""

from __future__ import annotations

import json

from ..ipc.client import Client
from ..ipc.protocol import ReconfigureReport, SettingInfo
from ..ipc.vocabulary import Refused
from .terminal import duration, size, table
from .values import parse_value, plain

#: Seconds to wait for a change: the engine finishes its step first, and a change may have much to move.
PATIENCE_S = 120.0


def show(engine: str | None, setting: str | None, *, as_json: bool) -> int:
    with Client(engine) as client:
        settings = client.config()
    if setting is not None:
        settings = [s for s in settings if s.name == setting]
        if not settings:
            raise Refused(f"There is no setting {setting!r}; `pagedeck config get` lists them.", field=setting)
    if as_json:
        import msgspec

        print(json.dumps([msgspec.structs.asdict(s) for s in settings], indent=2))
    elif setting is not None:
        print(_value(settings[0]))
    else:
        rows = [["setting", "value", "changes", "meaning"]]
        rows += [[s.name, _value(s), "live" if s.live else "restart", s.meaning] for s in settings]
        print(table(rows))
    return 0


def change(engine: str | None, setting: str, text: str, *, dry_run: bool) -> int:
    with Client(engine) as client:
        client.timeout = PATIENCE_S
        report = client.reconfigure({setting: parse_value(text)}, dry_run=dry_run)
    print(describe(report))
    return 0


def describe(report: ReconfigureReport) -> str:
    """A change's report in words."""
    changed = [(name, pair) for name, pair in report.changes.items() if pair[0] != pair[1]]
    if not changed:
        return "Nothing changes: the engine already works so."
    lines = [f"{name}: {plain(before)} → {plain(after)}" for name, (before, after) in changed]
    would = "would be " if report.dry_run else ""
    effects = [f"{report.blocks_moved:,} blocks {would}moved, {size(report.bytes_copied)} copied"]
    if report.cached_dropped:
        effects.append(f"{report.cached_dropped:,} cached blocks {would}dropped")
    if report.preempted:
        effects.append(f"{report.preempted:,} sequences {would}preempted")
    pause = "an estimated " if report.dry_run else ""
    effects.append(f"a pause of {pause}{duration(report.pause_ms / 1000)}")
    return "\n".join([*lines, "; ".join(effects) + ".", *report.notes])


def _value(setting: SettingInfo) -> str:
    text = plain(setting.value)
    return f"{text} {setting.unit}" if setting.unit and setting.value is not None else text
