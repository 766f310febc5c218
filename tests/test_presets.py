"""Presets: complete, explained, acceptable to the engine; on the command line, at start and while it runs."""

from __future__ import annotations

import argparse
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from pagedeck import cli
from pagedeck.commands import serve
from pagedeck.engine.config import EngineConfig
from pagedeck.ipc.client import Client
from pagedeck.ipc.presets import Preset, Text, find_preset, presets
from pagedeck.ipc.vocabulary import Refused

SCENARIOS = ["online-chat", "long-documents", "offline-batch", "tight-memory"]
each_preset = pytest.mark.parametrize("preset", presets().values(), ids=lambda preset: preset.name)


def test_there_is_one_for_each_way_to_use_an_engine() -> None:
    assert [*presets()] == SCENARIOS


@each_preset
def test_the_engine_accepts_it_live(preset: Preset) -> None:
    config = EngineConfig().changed(preset.values)
    assert {name: getattr(config, name) for name in preset.settings} == preset.values
    kinds = {spec.name: str(spec.type) for spec in dataclasses.fields(EngineConfig)}
    for name, value in preset.values.items():
        assert type(value).__name__ in kinds[name], name  # an int for a float would show as another text


def test_all_name_the_same_settings() -> None:
    """Else one would leave its traces under the next."""
    assert len({tuple(preset.settings) for preset in presets().values()}) == 1


@each_preset
def test_every_text_is_one_line_in_both_languages(preset: Preset) -> None:
    texts = [preset.title, preset.when, *(choice.reason for choice in preset.settings.values())]
    for text in texts:
        assert text.en.strip() == text.en and "\n" not in text.en and len(text.en) <= 110
        assert not re.search(r"[\u4e00-\u9fff]", text.en)
        assert re.search(r"[\u4e00-\u9fff]", text.zh_CN) and "\n" not in text.zh_CN
    for text in texts[1:]:
        assert text.en.endswith(".") and text.zh_CN.endswith("。")


def test_the_same_reason_is_not_given_for_different_values() -> None:
    given: dict[tuple[str, str], Any] = {}
    for preset in presets().values():
        for name, choice in preset.settings.items():
            assert given.setdefault((name, choice.reason.en), choice.value) == choice.value


def test_a_text_in_a_language_that_does_not_ship_is_english() -> None:
    text = Text("yes", "是")
    assert [text.said_in(language) for language in ("en", "zh_CN", "en_US", "C", "")] == [
        "yes",
        "是",
        "yes",
        "yes",
        "yes",
    ]


def test_an_unknown_one_is_refused_with_those_that_exist() -> None:
    with pytest.raises(Refused, match=r"preset is 'fast'; accepted is one of online-chat, .*tight-memory"):
        find_preset("fast")


# --- the command line ---------------------------------------------------------------------------------------------


def test_the_list_gives_every_value_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "preset"]) == 0
    said = capsys.readouterr().out
    for preset in presets().values():
        assert f"{preset.name}: {preset.when.en}" in said
        assert all(choice.reason.en in said for choice in preset.settings.values())
    assert re.search(r"block_size +16 +Half of the last block", said)


def serve_options(*arguments: str) -> argparse.Namespace:
    return cli.parser().parse_args(["serve", *arguments])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[EngineConfig]:
    """The configurations that engines would have been started with."""
    from pagedeck.engine.serving import service

    configs: list[EngineConfig] = []
    monkeypatch.setattr(service, "serve", lambda config, **_: configs.append(config) or 0)
    return configs


def test_an_engine_starts_with_it_and_options_win(started: list[EngineConfig]) -> None:
    serve.serve(serve_options("--preset", "tight-memory", "--block-size", "64", "--seed", "3"))
    expected = find_preset("tight-memory").values | {"block_size": 64, "seed": 3}
    assert started == [EngineConfig(**expected)]


def test_without_it_an_engine_starts_with_the_defaults(started: list[EngineConfig]) -> None:
    serve.serve(serve_options())
    assert started == [EngineConfig()]


@pytest.mark.parametrize("arguments", [["serve", "--preset", "fast"], ["config", "preset", "fast"]], ids=" ".join)
def test_an_unknown_one_is_a_fault_in_one_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("pagedeck: preset is 'fast'; accepted is one of ") and error.count("\n") == 1


def test_a_running_engine_takes_it_and_a_dry_run_changes_nothing(
    shared_engine: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shared_engine.connection.path).parent
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(folder))
    preset = find_preset("online-chat")
    with Client("shared") as client:

        def values() -> dict[str, Any]:
            return {info.name: info.value for info in client.config() if info.name in preset.settings}

        before = values()
        assert cli.main(["config", "preset", "online-chat", "--dry-run"]) == 0
        said = capsys.readouterr().out
        assert "block_size: 16 → 32\n" in said and "blocks would be moved" in said
        assert values() == before
        assert cli.main(["config", "preset", "online-chat"]) == 0
        said = capsys.readouterr().out
        assert "block_size: 16 → 32\n" in said and "swap_space_gib: 0.0 → 1.0\n" in said and "a pause of" in said
        assert values() == preset.values
        assert cli.main(["config", "preset", "online-chat"]) == 0
        assert capsys.readouterr().out.startswith("Nothing changes")
        client.reconfigure(before)
