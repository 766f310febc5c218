"""The command line beside a running engine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pagedeck.cli import main
from pagedeck.ipc.client import Client
from pagedeck.ipc.launch import Engine, LaunchFailed
from pagedeck.ipc.telemetry import TOPIC_EVENT


@pytest.fixture(autouse=True)
def engine(shared_engine, monkeypatch: pytest.MonkeyPatch):
    folder = Path(shared_engine.connection.path).parent
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(folder))
    monkeypatch.setenv("PAGEDECK_STATE", str(folder / "log"))
    return shared_engine


def test_status_for_people_and_for_programs(engine, capsys: pytest.CaptureFixture[str]) -> None:
    with Client("shared") as client:
        assert client.submit(prompt="the quick", max_tokens=4, ignore_eos=True).finished.output_tokens == 4
    assert main(["status"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("shared · ") and " · ready · up " in said and "of 256 blocks of 16 tokens" in said
    assert main(["status", "--name", "shared", "--json"]) == 0
    [status] = json.loads(capsys.readouterr().out)
    assert (status["name"], status["state"], status["pid"]) == ("shared", "ready", engine.connection.pid)


def test_one_setting_is_printed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "get", "block_size"]) == 0
    assert capsys.readouterr().out == "16 tokens\n"
    assert main(["config", "get", "no_such"]) == 1
    assert "no_such" in capsys.readouterr().err


def test_all_settings_say_whether_they_change_live(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "get"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert " live " in rows["block_size"] and " restart " in rows["dtype"]
    assert main(["config", "get", "--json"]) == 0
    assert {s["name"]: s["live"] for s in json.loads(capsys.readouterr().out)}["dtype"] is False


def test_a_setting_changes_live_and_a_dry_run_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Client("shared") as client:
        value = {s.name: s.value for s in client.config()}["max_batch_size"]
        assert main(["config", "set", "max_batch_size", str(value - 1), "--dry-run"]) == 0
        assert f"max_batch_size: {value} → {value - 1}" in capsys.readouterr().out
        assert {s.name: s.value for s in client.config()}["max_batch_size"] == value
        assert main(["config", "set", "max_batch_size", str(value - 1)]) == 0
        assert {s.name: s.value for s in client.config()}["max_batch_size"] == value - 1
        client.reconfigure({"max_batch_size": value})


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("block_size", "33", "33"),
        ("dtype", "float16", "restart"),
        ("no_such", "1", "no_such"),
        ("preemption", "on", "swap"),
    ],
)
def test_a_refused_change_says_why(setting: str, value: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", setting, value]) == 1
    error = capsys.readouterr().err
    assert error.startswith("pagedeck: ") and says in error and error.count("\n") == 1


def chat(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagedeck", "chat", "--max-tokens", "8", *arguments]
    return subprocess.run(command, capture_output=True, text=True, input=said, check=False)


def test_one_question_one_answer() -> None:
    answer = chat("the quick brown", "--temperature", "0", "--name", "shared")
    assert answer.returncode == 0 and answer.stderr == ""
    assert answer.stdout == chat("the quick brown", "--temperature", "0").stdout


def test_an_engine_that_is_about_to_stop_is_not_talked_to(
    engine, engine_process, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As when the app was killed a moment ago: its engine still finishes something."""

    class Another:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> Another:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def wait_ready(self, _report: object) -> object:
            return engine.connection

    monkeypatch.setattr("pagedeck.commands.chat.Engine", Another)
    with engine_process(name="ending") as ending, Client(ending.connection) as client:
        monkeypatch.setenv("PAGEDECK_RUNTIME", str(Path(ending.connection.path).parent))
        stream = client.submit(prompt="on", max_tokens=3000, ignore_eos=True)
        assert stream.accepted
        client.shutdown(drain=True)
        assert main(["chat", "the quick", "--max-tokens", "2"]) == 0
        assert "'ending' is about to stop; another one is started" in capsys.readouterr().err
        assert main(["chat", "the quick", "--name", "ending"]) == 1
        assert "'ending' is about to stop and takes nothing new" in capsys.readouterr().err
        stream.cancel()


def test_a_question_through_a_pipe() -> None:
    assert chat("--seed", "5", said="the lazy dog").stdout == chat("the lazy dog", "--seed", "5").stdout


def test_a_question_that_is_too_long_is_refused_in_one_sentence() -> None:
    answer = chat(said="the lazy dog " * 4000)
    assert answer.returncode == 1
    assert answer.stderr.startswith("pagedeck: ") and answer.stderr.count("\n") == 1


def test_a_conversation_remembers_cancels_and_leaves(engine, tmp_path: Path) -> None:
    """On a pseudo-terminal: Ctrl-C cancels the answer, pressed again it leaves."""
    pty = pytest.importorskip("pty")
    import os

    command = [sys.executable, "-m", "pagedeck", "chat", "--max-tokens", "3000", "--temperature", "0"]
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever runs the tests in the background ignores it
        os.execv(sys.executable, command)
    shown = b""

    def wait_for(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(terminal, 4096)
        shown = shown.partition(text)[2]

    wait_for(b"> ")
    with Client("shared") as client, client.subscribe([TOPIC_EVENT]) as events:
        client.status()
        os.write(terminal, b"the quick brown fox\n")
        while (said := events.receive(timeout=60)) and said[2].kind != "started":
            pass
    wait_for(b"fox\r\n")
    assert os.read(terminal, 1)  # the answer has begun
    os.write(terminal, b"\x03")
    wait_for(b"[cancelled]")
    wait_for(b"> ")
    with Client("shared") as client:
        assert not [row for row in client.snapshot().requests if row.state == "running"]
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def test_an_engine_that_dies_ends_the_answer_in_a_sentence_on_its_own_line(engine_process) -> None:
    with engine_process(name="mortal") as mortal:
        command = [sys.executable, "-m", "pagedeck", "chat", "--name", "mortal", "--max-tokens", "3000"]
        with subprocess.Popen(
            [*command, "--temperature", "0", "the quick brown fox"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout and child.stdout.read(1)
            mortal.process.kill()
            said, error = child.communicate()
    assert child.returncode == 1
    assert said.endswith("\n")
    assert error.startswith("pagedeck: The engine 'mortal' ended") and error.count("\n") == 1


def test_a_question_waits_for_a_model_that_is_being_loaded(engine_process) -> None:
    with engine_process(name="slow", ready=False):
        answer = chat("the quick brown", "--name", "slow")
    assert answer.returncode == 0 and answer.stdout.strip()
    assert answer.stderr in ("", "Waiting for the engine to load its model\n")


@pytest.mark.usefixtures("fresh_engines")
def test_stop_waits_until_the_engine_has_ended(tiny_model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", str(tiny_model_folder), "--device", "cpu", "--num-blocks", "16", "--threads", "1"]
    reports: list[str] = []
    with Engine("mortal", arguments) as child:
        connection = child.wait_ready(lambda text, _: reports.append(text))
        assert reports
        assert main(["stop", "--name", "mortal"]) == 0
        assert capsys.readouterr().out == "mortal stopped.\n"
        assert not connection.process_alive()


def test_an_engine_ends_with_the_program_that_launched_it(tiny_model_folder: Path) -> None:
    arguments = ["--model", str(tiny_model_folder), "--device", "cpu", "--num-blocks", "16", "--threads", "1"]
    with Engine("child", arguments) as child:
        connection = child.wait_ready()
    assert not connection.process_alive()
    assert not Path(connection.path).exists()


def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    with Engine("stillborn", ["--model", str(tmp_path)]) as child, pytest.raises(LaunchFailed, match=r"config\.json"):
        child.wait_ready()
