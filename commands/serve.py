"""``pagedeck serve``: an engine in this process. Its options are the engine's settings."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Container
from typing import Any

from ..engine.config import EngineConfig
from ..ipc.presets import find_preset
from ..ipc.vocabulary import Refused
from .terminal import Progress
from .values import parse_value, plain


def add_settings(parser: argparse.ArgumentParser, without: Container[str] = ()) -> None:
    """One option a setting, described by what the setting itself says about its values."""
    group = parser.add_argument_group("settings")
    for spec in dataclasses.fields(EngineConfig):
        if spec.name in without:
            continue
        group.add_argument(
            "--" + spec.name.replace("_", "-"),
            dest=spec.name,
            default=argparse.SUPPRESS,
            type=str if spec.type == "str" else parse_value,
            metavar=_metavar(spec),
            help=_help(spec).replace("%", "%%"),
        )


def stated_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings among the options of a command line."""
    names = {spec.name for spec in dataclasses.fields(EngineConfig)}
    return {name: value for name, value in vars(options).items() if name in names}


def check_settings(options: argparse.Namespace) -> None:
    """Raises :class:`Refused` for settings that no engine takes."""
    EngineConfig(**stated_settings(options))


def serve(options: argparse.Namespace) -> int:
    stated = stated_settings(options)
    preset = find_preset(options.preset).values if options.preset is not None else {}
    config = EngineConfig(**preset | stated)
    from ..engine.serving.service import serve as run
    from .gateway import GatewayProcess

    name = "pagedeck" if options.engine is None else options.engine
    if options.trace is not None and options.http is None:
        text = "trace is stated without http, whose process writes it; state --http PORT too, or run `pagedeck trace`."
        raise Refused(text, field="trace")
    with contextlib.nullcontext() if options.http is None else GatewayProcess(name, options.http, options.trace):
        return run(
            config,
            name=name,
            listen=options.listen,
            owned=options.exit_with_parent,
            private=options.private,
            kv_events=options.kv_events,
            kv_events_replay=options.kv_events_replay,
            progress=Progress() if sys.stderr.isatty() else None,  # elsewhere the log says enough
        )


def _metavar(spec: dataclasses.Field[Any]) -> str:
    if spec.metadata["choices"]:
        return "{" + ",".join(plain(choice) for choice in spec.metadata["choices"]) + "}"
    return (spec.metadata["unit"] or ("TEXT" if spec.type == "str" else "N")).upper()


def _help(spec: dataclasses.Field[Any]) -> str:
    live = ", changes while requests run" if spec.metadata["live"] else ""
    return f"{spec.metadata['meaning']} (default {plain(spec.default)}{live})"
