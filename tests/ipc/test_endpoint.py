"""Connection files: who may claim a name, what a dead engine leaves behind, and where sockets may listen."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import zmq
from pagedeck.ipc import endpoint, folders
from pagedeck.ipc.endpoint import Connection, Endpoint, bind, find, list_connections, read_connection, write_connection
from pagedeck.ipc.vocabulary import Refused


def engine(name: str = "alpha", listen: str | None = None) -> Endpoint:
    return bind(zmq.Context.instance(), name=name, listen=listen, model="tiny", log="")


def dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def connection(**fields: object) -> Connection:
    facts = {"name": "alpha", "pid": os.getpid(), "epoch": "e1", "protocol": 1, "control": "", "telemetry": ""}
    return Connection(**(facts | {"started": endpoint.process_started(os.getpid())} | fields))


def test_an_engine_can_be_found_by_name_and_alone(runtime: Path) -> None:
    alpha = engine()
    assert find() == find("alpha") == find(alpha.connection.path) == alpha.connection
    beta = engine("beta")
    assert [c.name for c in list_connections()] == ["alpha", "beta"]
    with pytest.raises(Refused, match=r"alpha, beta.*--name"):
        find()
    with pytest.raises(Refused, match=r"'gamma'.*alpha, beta"):
        find("gamma")
    alpha.close()
    beta.close()
    with pytest.raises(Refused, match="pagedeck serve"):
        find()
    assert list(runtime.iterdir()) == []


def test_files_are_private(runtime: Path) -> None:
    made = engine()
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    for path in runtime.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    made.close()


def test_a_runtime_folder_open_to_others_is_closed(runtime: Path) -> None:
    runtime.mkdir(mode=0o755)
    runtime.chmod(0o755)
    assert stat.S_IMODE(endpoint.runtime_folder().stat().st_mode) == 0o700


def test_a_live_engines_name_is_taken(runtime: Path) -> None:
    alpha = engine()
    before = sorted(runtime.iterdir())
    with pytest.raises(Refused, match=f"'alpha'.*process {os.getpid()}"):
        engine()
    assert sorted(runtime.iterdir()) == before
    assert find("alpha") == alpha.connection
    alpha.close()


@pytest.mark.parametrize("how", ["gone", "number used again"])
def test_a_dead_engines_file_and_sockets_are_removed(runtime: Path, how: str) -> None:
    left = endpoint.runtime_folder() / "dead.ctl"
    left.touch()
    facts = {"pid": dead_process()} if how == "gone" else {"started": 1.0}
    dead = write_connection(connection(control=f"ipc://{left}", **facts))
    assert Path(dead.path).exists()
    assert list_connections() == []
    assert list(runtime.iterdir()) == []


def test_a_dead_engines_name_can_be_claimed(runtime: Path) -> None:
    write_connection(connection(pid=dead_process(), epoch="old"))
    alpha = engine()
    assert find("alpha").epoch == alpha.connection.epoch
    alpha.close()


def test_of_two_engines_that_start_at_once_one_gets_the_name(runtime: Path) -> None:
    first, second = connection(epoch="e1"), connection(epoch="e2")
    endpoint.check_free("alpha")  # as both did
    write_connection(first)
    with pytest.raises(Refused, match="'alpha'"):
        write_connection(second)
    assert find("alpha").epoch == "e1"


def test_an_engine_that_ends_leaves_its_successors_file_alone(runtime: Path) -> None:
    first = write_connection(connection(epoch="e1", pid=dead_process()))
    second = write_connection(connection(epoch="e2"))
    endpoint.remove_connection(first)
    assert find("alpha") == second


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": 1}'])
def test_what_is_no_connection_file_is_refused_and_its_name_is_free(runtime: Path, text: str) -> None:
    path = endpoint.runtime_folder() / "alpha.json"
    path.write_text(text)
    with pytest.raises(Refused, match="not a connection file"):
        read_connection(path)
    assert list_connections() == []
    alpha = engine()
    assert find() == alpha.connection
    alpha.close()


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden", "x" * 65, "sp ace", "ü"])
def test_names_that_are_no_file_names_are_refused(runtime: Path, name: str) -> None:
    with pytest.raises(Refused) as refused:
        engine(name)
    assert refused.value.field == "name"


def test_a_path_too_long_for_a_socket_is_refused_by_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 120)
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(folder))
    with pytest.raises(Refused, match=r"has \d+ bytes.*PAGEDECK_RUNTIME"):
        engine()
    assert list(folder.iterdir()) == []


def test_tcp_listens_on_loopback_with_a_key(runtime: Path) -> None:
    made = engine(listen="tcp://127.0.0.1:0")
    c = made.connection
    assert c.control.startswith("tcp://127.0.0.1:") and c.telemetry.startswith("tcp://127.0.0.1:")
    assert c.control != c.telemetry and not c.control.endswith(":0")
    assert len(c.server_key) == 40 and c.local
    made.close()


def test_without_ipc_sockets_listen_on_loopback_with_a_key(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq, "has", lambda feature: feature != "ipc")
    made = engine()
    assert made.connection.control.startswith("tcp://127.0.0.1:") and made.connection.server_key
    made.close()


def test_a_wildcard_address_is_connected_to_on_loopback(runtime: Path) -> None:
    made = engine(listen="tcp://0.0.0.0:0")
    assert made.connection.control.startswith("tcp://127.0.0.1:")
    made.close()


def test_a_taken_port_is_one_sentence_and_claims_nothing(runtime: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Refused, match=f"Port {port} of 127.0.0.1 is taken"):
            engine(listen=f"tcp://127.0.0.1:{port}")
    assert list_connections() == []


@pytest.mark.parametrize(
    "listen",
    ["127.0.0.1:5", "tcp://:5", "tcp://host.example:5", "tcp://127.0.0.1:70000", "tcp://127.0.0.1", "ipc:///x"],
)
def test_addresses_that_are_none_are_refused(runtime: Path, listen: str) -> None:
    with pytest.raises(Refused) as refused:
        engine(listen=listen)
    assert refused.value.field == "listen"


def test_an_engine_elsewhere_is_not_looked_for_among_local_processes() -> None:
    assert not connection(control="tcp://192.0.2.7:1").local
    assert connection(control="tcp://[::1]:1").local
    assert replace(connection(), control="ipc:///x").local


def test_the_wire_imports_neither_torch_nor_qt() -> None:
    code = (
        "import sys, pagedeck, pagedeck.ipc.client, pagedeck.ipc.aio, pagedeck.ipc.subscriber;"
        "print([m for m in sys.modules if m.partition('.')[0] in ('torch', 'PySide6', 'numpy', 'transformers')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_folder_that_cannot_be_used_names_its_own_variable(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "file" / "state"))
    with pytest.raises(Refused, match="PAGEDECK_STATE"):
        folders.state_folder()
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "file" / "run"))
    with pytest.raises(Refused, match="PAGEDECK_RUNTIME"):
        endpoint.runtime_folder()
