"""Keys for TCP: who gets in with which, what is refused, and what a revoked key's connections come to."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pagedeck
import pytest
from pagedeck.cli import main
from pagedeck.commands import keys as command
from pagedeck.ipc import folders
from pagedeck.ipc.client import Client, EngineError, EngineGone
from pagedeck.ipc.endpoint import Connection, find, read_connection
from pagedeck.ipc.folders import keys_folder
from pagedeck.ipc.keys import KeyPair, add_key, engine_keys, read_keys, revoke_key
from pagedeck.ipc.protocol import Done, Finished, SampleResult, SetPriority, Submit, Tokens
from pagedeck.ipc.telemetry import TOPIC_EVENT, Event
from pagedeck.ipc.vocabulary import Refused

TCP = "tcp://127.0.0.1:0"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def handed_over(folder: Path, name: str, *, operator: bool = False) -> Path:
    """The file that ``pagedeck keys add`` makes for the engine that runs."""
    path = folder / f"{name}.json"
    assert command.add(name, operator=operator, engine=None, address=None, output=str(path)) == 0
    return path


def echo(client: str, message: Any) -> list[Any]:
    if isinstance(message, Submit):
        return [Tokens(id=message.id, text=message.prompt or ""), Finished(id=message.id, samples=[
            SampleResult(0, "stop", 1)])]  # fmt: skip
    return [Done(id=message.id)]


def test_a_file_made_for_a_client_is_all_that_it_needs(board: Callable[..., Any], tmp_path: Path) -> None:
    made = board(listen=TCP)
    made.answer(echo)
    path = handed_over(tmp_path, "alice")
    assert mode(path) == 0o600
    connection = find(str(path))
    assert (connection.pid, connection.epoch, connection.local) == (0, "", False)
    assert path.read_text().count(connection.secret_key) == 1
    for file in keys_folder().rglob("*.json"):  # the engine's side keeps no secret of hers
        assert connection.secret_key not in file.read_text()
    with Client(str(path), name="reader") as client:
        assert client.submit("hello").text() == "hello"
        with client.subscribe([TOPIC_EVENT]) as events:
            while not made.switchboard.audience.wanted(TOPIC_EVENT):
                client.status()
            made.switchboard.publish(TOPIC_EVENT, Event("e", 0.0, "state", "hi"))
            received = events.receive(timeout=60)
            assert received is not None and received[2].text == "hi"


def test_the_core_learns_who_asks_and_whether_as_an_operator(board: Callable[..., Any], tmp_path: Path) -> None:
    made = board(listen=TCP)
    alice, bob = handed_over(tmp_path, "alice"), handed_over(tmp_path, "bob", operator=True)
    asked = {}
    for who, file in (("", made.connection), ("alice", str(alice)), ("bob", str(bob))):
        with Client(file, name="program") as client:
            client.post(SetPriority(request="x"), lambda _reply: None)
            received = made.inbox.get(timeout=60)
            asked[who] = received.operator
            assert received.client.rpartition(":")[0] == who
            assert made.switchboard.client_name(received.client) == (f"{who}/program" if who else "program")
        assert made.inbox.get(timeout=60).reason == "The client said goodbye."
    assert asked == {"": True, "alice": False, "bob": True}


def test_a_key_that_is_not_known_gets_nothing(board: Callable[..., Any]) -> None:
    made = board(listen=TCP)
    stranger = KeyPair.make()
    with pytest.raises(EngineGone, match="key") as error:
        Client(replace(made.connection, public_key=stranger.public, secret_key=stranger.secret))
    assert error.value.code == "key" and made.inbox.empty()


def test_a_revoked_key_is_cut_off_and_the_others_go_on(board: Callable[..., Any], tmp_path: Path) -> None:
    made = board(listen=TCP)
    alice, bob = handed_over(tmp_path, "alice"), handed_over(tmp_path, "bob")
    with Client(str(bob)) as other, Client(made.connection) as owner, Client(str(alice)) as client:
        mine, theirs = client.submit("x"), other.submit("y")
        asked = {
            message.message.prompt: message for message in (made.inbox.get(timeout=60), made.inbox.get(timeout=60))
        }
        assert set(asked) == {"x", "y"}
        assert command.revoke("alice") == 0
        gone = made.inbox.get(timeout=60)
        assert gone.client == asked["x"].client and gone.reason == "The key 'alice' was revoked."
        with pytest.raises(EngineGone, match="key") as error:
            mine.text()
        assert error.value.code == "key"
        for part in echo("", asked["y"].message):
            made.switchboard.send(asked["y"].client, part)
        assert theirs.text() == "y"  # over another connection than it was asked
        assert owner.status().name == "b"
        with pytest.raises(EngineGone) as error:
            Client(str(alice))
        assert error.value.code == "key"
        telemetry = client.subscribe([TOPIC_EVENT])
        with other.subscribe([TOPIC_EVENT]) as events:
            while not made.switchboard.audience.wanted(TOPIC_EVENT):
                other.status()
            made.switchboard.publish(TOPIC_EVENT, Event("e", 0.0, "state", "hi"))
            assert events.receive(timeout=60) is not None
        assert telemetry.receive(timeout=0) is None
        telemetry.close()


def test_a_key_of_the_same_name_is_another_key(board: Callable[..., Any], tmp_path: Path) -> None:
    made = board(listen=TCP)
    made.answer(echo)
    path = handed_over(tmp_path, "alice")
    with Client(str(path)) as client:
        assert client.submit("x").text() == "x"
        revoke_key("alice")
        path.unlink()
        with Client(str(handed_over(tmp_path, "alice"))) as again:
            assert again.submit("y").text() == "y"
        with pytest.raises(EngineError):
            while True:
                client.status()


def test_an_engine_that_comes_back_knows_the_keys_and_is_known_by_its_own(
    board: Callable[..., Any], tmp_path: Path
) -> None:
    first = board(listen=TCP)
    path = handed_over(tmp_path, "alice")
    first.close()
    second = board(listen=TCP)
    assert second.connection.server_key == first.connection.server_key == engine_keys().public
    assert second.connection.public_key != first.connection.public_key
    second.answer(echo)
    there = second.connection
    connection = replace(read_connection(path), control=there.control, telemetry=there.telemetry)
    with Client(connection) as client:
        assert client.submit("x").text() == "x"


def test_telemetry_is_on_the_port_after_the_stated_one(board: Callable[..., Any]) -> None:
    ports = [int(board(listen=TCP).connection.control.rpartition(":")[2])]
    for port in range(ports[0] + 100, ports[0] + 200, 2):  # some pair is free
        try:
            made = board(listen=f"tcp://127.0.0.1:{port}", name="pair")
        except Refused:
            continue
        assert made.connection.telemetry == f"tcp://127.0.0.1:{port + 1}"
        return
    pytest.fail("no two neighbouring ports are free")


# --- where a key's file is accepted -------------------------------------------------------------------------------


def test_the_command_line_makes_uses_and_revokes_a_key(
    board: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board(listen=TCP)
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "list"]) == 0
    assert "only you can connect" in capsys.readouterr().err
    assert main(["keys", "add", "alice"]) == 0
    said = capsys.readouterr().out
    assert mode(tmp_path / "alice.json") == 0o600 and "alice.json connects to tcp://127.0.0.1:" in said
    assert "for a client on another, state --address tcp://HOST:" in said
    assert main(["status", "--connection", "alice.json"]) == 0
    assert "b · m · ready" in capsys.readouterr().out
    assert main(["keys", "list"]) == 0
    assert capsys.readouterr().out.startswith("alice  client    made ")
    assert main(["keys", "revoke", "alice"]) == 0
    assert main(["status", "--connection", "alice.json"]) == 1
    assert "does not answer" in capsys.readouterr().out
    assert main(["keys", "revoke", "alice"]) == 1
    assert "no key named 'alice'" in capsys.readouterr().err


def test_any_program_connects_with_the_file(board: Callable[..., Any], tmp_path: Path) -> None:
    board(listen=TCP).answer(echo)
    with pagedeck.connect(str(handed_over(tmp_path, "alice"))) as client:
        assert client.submit("hello").text() == "hello"


# --- files --------------------------------------------------------------------------------------------------------


def test_key_files_and_folders_are_private(runtime: Path) -> None:
    engine_keys()
    add_key("alice")
    assert mode(keys_folder()) == mode(keys_folder() / "clients") == 0o700
    assert {mode(path) for path in keys_folder().rglob("*.json")} == {0o600}
    assert not list(keys_folder().rglob("*.part"))


def test_what_is_open_to_others_is_refused_with_what_to_do(board: Callable[..., Any], tmp_path: Path) -> None:
    board(listen=TCP)
    path = handed_over(tmp_path, "alice")
    path.chmod(0o640)
    with pytest.raises(Refused, match=f"mode 0640.*chmod 600 {path}"):
        Client(str(path))
    engine = keys_folder() / "engine.json"
    engine.chmod(0o644)
    with pytest.raises(Refused, match=r"mode 0644.*chmod 600"):
        engine_keys()
    keys_folder().chmod(0o755)
    with pytest.raises(Refused, match=r"mode 0755.*chmod 700"):
        read_keys()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": 1}', '{"name": "other", "public": "x"}'])
def test_a_damaged_key_file_is_nobodys_and_harms_no_other(runtime: Path, text: str) -> None:
    add_key("alice")
    bad = keys_folder() / "clients" / "bad.json"
    bad.write_text(text)
    bad.chmod(0o600)
    keys, complaints = read_keys()
    assert [key.name for key in keys] == ["alice"]
    assert len(complaints) == 1 and str(bad) in complaints[0]


def test_names_are_taken_once_and_known(runtime: Path) -> None:
    add_key("alice")
    with pytest.raises(Refused, match="keys revoke alice"):
        add_key("alice")
    with pytest.raises(Refused, match=r"'bob'; there are alice\."):
        revoke_key("bob")
    for name in ("../alice", "a/b", "", "a:b"):
        with pytest.raises(Refused) as refused:
            add_key(name)
        assert refused.value.field == "name"


def test_a_key_is_not_made_for_an_engine_that_nobody_else_reaches(board: Callable[..., Any], tmp_path: Path) -> None:
    board()
    with pytest.raises(Refused, match="--listen"):
        handed_over(tmp_path, "alice")
    assert read_keys() == ([], [])


def test_a_key_whose_file_cannot_be_written_is_none(board: Callable[..., Any], tmp_path: Path) -> None:
    board(listen=TCP)
    with pytest.raises(Refused, match="--output"):
        handed_over(tmp_path / "missing", "alice")
    (tmp_path / "bob.json").write_text("mine")
    with pytest.raises(Refused, match="exists"):
        handed_over(tmp_path, "bob")
    assert read_keys() == ([], []) and (tmp_path / "bob.json").read_text() == "mine"


def test_an_address_elsewhere_can_be_stated(runtime: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "alice.json"
    made = {"operator": True, "engine": "far", "output": str(path)}
    assert command.add("alice", address="tcp://gpu.example:5555", **made) == 0
    connection = read_connection(path)
    assert (connection.name, connection.control, connection.telemetry) == (
        "far", "tcp://gpu.example:5555", "tcp://gpu.example:5556"
    )  # fmt: skip
    assert connection.server_key == engine_keys().public
    said = capsys.readouterr().out
    assert "do all that you may" in said and "this machine's own" not in said
    assert command.show() == 0
    assert "alice  operator  made " in capsys.readouterr().out
    for address in ("gpu.example:1", "tcp://gpu.example", "tcp://x:0", "tcp://x:65535", "ipc:///x", "tcp://a b:1"):
        with pytest.raises(Refused) as refused:
            command.add("bob", address=address, operator=False, engine=None, output=str(tmp_path / "bob.json"))
        assert refused.value.field == "address"


@pytest.mark.parametrize("key", ["", "x", "é" * 40, " " * 40, "a" * 41])
def test_a_connection_file_whose_keys_are_none_is_refused(tmp_path: Path, key: str) -> None:
    pair = KeyPair.make()
    bad = Connection("a", 0, "", 1, "tcp://h:1", "tcp://h:2", pair.public, key, pair.secret)
    path = tmp_path / "bad.json"
    path.write_bytes(msgspec.json.encode(bad))
    with pytest.raises(Refused, match="keys are none"):
        read_connection(path)


def test_a_shared_temporary_folder_is_no_way_into_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAGEDECK_RUNTIME", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(folders.sys, "platform", "linux")
    (tmp_path / "mine").mkdir(mode=0o755)
    (tmp_path / f"pagedeck-{folders.os.getuid()}").symlink_to(tmp_path / "mine")
    with pytest.raises(Refused, match="leads somewhere else"):
        folders.runtime_folder()
    assert mode(tmp_path / "mine") == 0o755
