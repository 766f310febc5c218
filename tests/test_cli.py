"""The command line without an engine: what it accepts, what it says, how it fails."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pagedeck.cli import main
from pagedeck.commands.doctor import _qt_fault, examine
from pagedeck.commands.engines import describe_stats
from pagedeck.commands.settings import describe
from pagedeck.commands.terminal import Progress, duration, size, table
from pagedeck.commands.values import parse_value, plain
from pagedeck.engine.config import EngineConfig
from pagedeck.ipc.protocol import ReconfigureReport
from pagedeck.ipc.telemetry import Stats, TierStats


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PAGEDECK_CACHE", str(tmp_path / "cache"))


def pagedeck(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagedeck", *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def test_the_app_s_options_need_no_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    assert main(["--language", "zh"]) == 1
    assert "There is no display for the app" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["stop"],
        ["chat", "hello", "--name", "nobody"],
        ["config", "get"],
        ["config", "set", "block_size", "64"],
        ["status", "--name", "nobody"],
        ["serve", "--block-size", "33"],
        ["serve", "--model", ""],
        ["serve", "--name", "no/slash"],
        ["serve", "--name", ""],
        ["serve", "--listen", "everywhere"],
        ["chat", "hello", "--temperature", "-1"],
        ["bench", "quick", "--requests", "0"],
    ],
    ids=" ".join,
)
def test_a_fault_is_one_sentence_and_no_traceback(arguments: list[str]) -> None:
    answer = pagedeck(*arguments)
    assert answer.returncode == 1
    lines = answer.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("pagedeck: ") and lines[0].endswith(".")


def test_a_refused_setting_names_field_value_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--block-size", "33"]) == 1
    assert capsys.readouterr().err == "pagedeck: block_size is 33; accepted is one of 8, 16, 32, 64, 128, 256.\n"


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [(["serve", "--bogus"], "serve"), (["config", "set", "block_size", "32", "--bogus"], "config set")],
)
def test_an_unknown_option_is_told_with_its_command_s_usage(
    arguments: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.startswith(f"usage: pagedeck {usage} [-h]") and said.endswith("unrecognized arguments: --bogus\n")


def test_the_app_checks_an_engine_s_settings_before_it_opens(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    with pytest.raises(SystemExit) as end:
        main(["--theme", "dark", "--bogus"])
    assert end.value.code == 2 and capsys.readouterr().err.endswith("unrecognized arguments: --bogus\n")
    assert main(["app", "--block-size", "33"]) == 1
    assert capsys.readouterr().err == "pagedeck: block_size is 33; accepted is one of 8, 16, 32, 64, 128, 256.\n"


def test_a_wrong_command_line_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["sevre"])
    assert end.value.code == 2
    assert "sevre" in capsys.readouterr().err


def test_every_setting_is_an_option_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for spec in dataclasses.fields(EngineConfig):
        assert f"--{spec.name.replace('_', '-')} " in said
        assert " ".join(spec.metadata["meaning"].split())[:30] in said


def test_the_openmp_runtime_waits_passively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    main(["status", "--json"])
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert os.environ["GOMP_SPINCOUNT"] == "3000"


def test_status_without_engines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 1
    assert capsys.readouterr().err == "No engine runs; start one with `pagedeck serve`.\n"
    assert main(["status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_is_no_fault(unbuffered: str) -> None:
    program = "import sys; from pagedeck.cli import main; sys.exit(main(['status', '--json']))"
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", program]
    surroundings = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=surroundings) as child:
        os.close(writer)
        assert child.stderr
        assert child.stderr.read() == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [("32", 32), ("0.5", 0.5), ("on", True), ("OFF", False), ("none", None), ("swap", "swap"), ("1e3", 1000.0)],
)
def test_values_are_read_as_a_person_writes_them(text: str, value: object) -> None:
    parsed = parse_value(text)
    assert parsed == value and type(parsed) is type(value)


def test_values_are_written_as_they_are_read() -> None:
    assert [plain(v) for v in (None, True, False, 65_536, 0.5, "swap")] == [
        "none",
        "on",
        "off",
        "65,536",
        "0.5",
        "swap",
    ]
    assert plain("") == '""'


def test_a_report_in_words() -> None:
    report = ReconfigureReport(
        dry_run=False, changes={"block_size": (32, 64)}, pause_ms=38.2, blocks_moved=212, bytes_copied=41 * 2**20
    )
    assert describe(report) == "block_size: 32 → 64\n212 blocks moved, 41 MiB copied; a pause of 38 ms."
    report.dry_run, report.preempted, report.cached_dropped, report.notes = True, 2, 7, ["Two long prompts wait."]
    assert describe(report).splitlines()[1:] == [
        "212 blocks would be moved, 41 MiB copied; 7 cached blocks would be dropped; 2 sequences would be preempted; "
        "a pause of an estimated 38 ms.",
        "Two long prompts wait.",
    ]


def test_status_tells_utilisation_as_two_figures_and_work_done_again() -> None:
    device = TierStats(
        400, 16, 8192, free=200, reserved=20, cached=80, used=100, tokens=1536, saved=20, mean_run=5.25, filled=0.8,
        allocated=0.3,
    )  # fmt: skip
    host = TierStats(0, 16, 8192, 0, 0, 0, 0, 0)
    stats = Stats(
        epoch="e", time=0.0, sequences={}, device=device, host=host, running=3, waiting=0, swapped=0,
        prompt_tokens_per_s=0.0, output_tokens_per_s=0.0, requests_per_s=0.0, latency={}, prefix_queried_tokens=0,
        prefix_hit_tokens=0, preemptions=2, steps=9, finished=0, failed=0, cancelled=0, cpu_percent=0.0,
        memory_bytes=0, device_memory_bytes=0, requests=[], computed_tokens=4064, redone_tokens=16,
        computed_last_minute=1000, redone_last_minute=15,
    )  # fmt: skip
    said = "\n".join(describe_stats(stats))
    assert "30% allocated · 120 of 400 blocks of 16 tokens" in said
    assert "80.0% of that filled · 1,536 tokens · sharing saves 20 blocks · runs of 5.2 blocks" in said
    assert "4,064 tokens computed, 0.4% of them again after a preemption (1.5% in the last minute)" in said
    assert "host pool" not in said


def test_a_change_to_the_same_value_changes_nothing() -> None:
    assert describe(ReconfigureReport(dry_run=False, changes={"block_size": (32, 32)})).startswith("Nothing changes")


def test_an_engine_that_ended_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the interpreter taking torch apart, which takes seconds."""

    class Left(Exception):
        pass

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr("pagedeck.engine.serving.service.serve", lambda config, **_: 3)
    monkeypatch.setattr("os._exit", leave)
    with pytest.raises(Left, match="3"):
        main(["serve", "--name", "x"])


def test_progress_on_a_terminal_is_one_line_and_leaves_none() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream, now = Terminal(), iter((100.0, 101.0, 101.2, 107.9))
    with Progress(stream, lambda: next(now)) as progress:
        progress("Loading", 0.25)
        progress("Loading", 0.5)
        progress("Loading", 0.5)
        progress("Warming up", None)
    assert "\n" not in stream.getvalue()
    lines = ["Loading (25%)", "Loading (50%) · 1 s", "Warming up · 7 s"]
    assert stream.getvalue().split("\r\x1b[K") == ["", *lines, ""]


def test_progress_in_a_file_is_a_line_a_stage() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress("Downloading: 1.0 of 92.9 MB", 0.01)
        progress("Downloading: 2.0 of 92.9 MB", 0.02)
        progress("Extracting", None)
    assert stream.getvalue() == "Downloading: 1.0 of 92.9 MB\nExtracting\n"


def test_quantities() -> None:
    assert [size(n) for n in (0, 1023, 2048, 5 * 2**20, 3 * 2**30)] == ["0 B", "1023 B", "2 KiB", "5 MiB", "3.00 GiB"]
    assert [duration(s) for s in (0.038, 1.5, 185, 7_260)] == ["38 ms", "1.50 s", "3 min 5 s", "2 h 1 min"]
    assert table([["a", "bb"], ["ccc", "d"]]) == "a    bb\nccc  d"


def test_doctor_looks_at_everything_and_says_what_to_do() -> None:
    findings = {finding.subject: finding for finding in examine()}
    for subject in ("Python", "Machine", "torch", "GPU", "triton", "Qt", "Fonts", "Default model", "Running engines"):
        assert subject in findings
    assert findings["torch"].fine
    assert "downloads 93 MB" in findings["Default model"].text
    assert all(finding.fine or finding.remedy for finding in findings.values())


def test_doctor_for_programs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QT_QPA_PLATFORM", "no-such-platform")
    assert main(["doctor", "--json"]) == 1
    findings = {finding["subject"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert not findings["Qt"]["fine"] and findings["Qt"]["remedy"]


def test_doctor_tells_a_missing_display_from_a_missing_library() -> None:
    hint = "qt.qpa.plugin: From 6.5.0, xcb-cursor0 or libxcb-cursor0 is needed to load the Qt xcb platform plugin.\n"
    blind = _qt_fault("qt.qpa.xcb: could not connect to display \n" + hint)
    assert "no display" in blind.text and "apt-get" not in blind.remedy
    lacking = _qt_fault(hint)
    assert "libxcb-cursor0 is needed" in lacking.text and "libxcb-cursor0" in lacking.remedy
