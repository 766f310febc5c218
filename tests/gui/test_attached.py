"""The window on another server's prefix cache: what its events say, what they cannot say, and letting go."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import pytest
import zmq
from pagedeck.gui.attached import server_metrics
from pagedeck.gui.attached.dialog import AttachDialog
from pagedeck.gui.attached.link import AttachedLink, Source
from pagedeck.gui.attached.pool import FEWEST, MEDIUMS, AttachedCache
from pagedeck.gui.attached.window import AttachedWindow
from pagedeck.gui.i18n import Language, Languages
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.map.block_image import Colouring
from pagedeck.ipc.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from pagedeck.ipc.vocabulary import BlockState
from pytestqt.qtbot import QtBot

from .scripted_link import Clock

WAIT_MS = 30_000


def cache_of(*events: Any) -> AttachedCache:
    made = AttachedCache(1000.0)
    made.apply([EventBatch(1100.0, events)])
    return made


def chain(hashes: list[int], parent: int | None = None, size: int = 4, **more: Any) -> BlockStored:
    return BlockStored(tuple(hashes), parent, tuple(range(size * len(hashes))), size, **more)


# --- what is known ----------------------------------------------------------------------------------------------------


def test_blocks_get_slots_depths_and_tokens() -> None:
    pool = cache_of(chain([10, 11, 12]), chain([20], parent=11), chain([30], parent=99)).device
    assert [pool.blocks[slot].hash for slot in range(5)] == [10, 11, 12, 20, 30]
    assert [pool.blocks[slot].depth for slot in range(5)] == [1, 2, 3, 3, 0]
    assert pool.blocks[1].token_ids == (4, 5, 6, 7) and pool.blocks[1].children == 2
    assert pool.lineage(3) == [0, 1, 3] and pool.lineage(4) == [4]
    tier = pool.tier
    assert tier.num_blocks == FEWEST and tier.counts[BlockState.CACHED] == 5 and tier.block_size == 4
    assert tier.depth[:6].tolist() == [1, 2, 3, 3, 0, 0] and tier.last_used[0] == 100


def test_removed_slots_are_used_again_and_what_is_stored_twice_counts_once() -> None:
    made = cache_of(chain([1, 2, 3]))
    made.apply([EventBatch(1.0, (BlockRemoved((2, 77)), chain([1]), chain([5], parent=3)))])
    pool = made.device
    assert {slot: block.hash for slot, block in pool.blocks.items()} == {0: 1, 1: 5, 2: 3}
    assert (pool.stored, pool.removed) == (4, 1)
    assert pool.tier.counts[BlockState.CACHED] == 3


def test_mediums_and_groups_are_kept_apart_and_all_is_cleared() -> None:
    made = cache_of(chain([1]), chain([1], medium="CPU"), chain([1], group=1))
    assert len(made.device) == 2 and len(made.pools["CPU"]) == 1
    made.apply([EventBatch(2.0, (BlockRemoved((1,), "GPU", 1),))])
    assert len(made.device) == 1
    made.apply([EventBatch(3.0, (AllBlocksCleared(), chain([8])))])
    assert [block.hash for block in made.device.blocks.values()] == [8] and not len(made.pools["CPU"])


def test_a_pool_grows_with_what_is_told_and_takes_the_servers_size() -> None:
    made = cache_of(chain(list(range(100))))
    assert made.device.tier.num_blocks == 2 * FEWEST
    made.device.set_capacity(1600, 1)  # told in tokens
    assert made.device.tier.num_blocks == made.device.capacity == 400
    assert made.device.tier.counts[BlockState.CACHED] == 100
    made.device.set_capacity(10, 4)
    assert made.device.tier.num_blocks == 100  # more is stored than it says that it has


def test_a_pool_grows_past_slots_that_were_given_back() -> None:
    made = cache_of(chain(list(range(FEWEST))), BlockRemoved((3, 60)))
    made.apply([EventBatch(1100.0, (chain(list(range(100, 100 + FEWEST))),))])
    pool = made.device
    assert len(pool.blocks) == 2 * FEWEST - 2
    assert {pool.blocks[slot].hash for slot in (3, 60)} == {100, 101}
    assert pool.tier.num_blocks == 2 * FEWEST and pool.tier.counts[BlockState.CACHED] == 2 * FEWEST - 2


@pytest.mark.parametrize("when", [-1e300, 0.0, 1e18, 1e300])
def test_no_clock_of_a_server_does_harm(when: float) -> None:
    made = AttachedCache(1000.0)
    made.apply([EventBatch(when, (chain([1]),))])
    assert made.device.tier.last_used[0] in (0, 2**32 - 1)


def test_numbers_of_blocks_that_cannot_be_are_passed_over() -> None:
    made = cache_of(chain([1]))
    for blocks, size in ((10**15, 16), (-5, 4), (5, -4)):
        made.device.set_capacity(blocks, size)
    made.apply([EventBatch(1.0, (chain([2]),))])
    assert made.device.capacity == 0 and made.device.tier.num_blocks == FEWEST and len(made.device) == 2


def test_of_many_mediums_the_first_are_shown() -> None:
    made = cache_of(*(chain([n], medium=f"M{n}") for n in range(100)))
    assert len([*made]) == MEDIUMS


def test_a_large_cache_is_forgotten_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagedeck.gui.attached.pool._FORGOTTEN", 30)
    made = cache_of(chain(list(range(50))))
    made.apply([EventBatch(1.0, (AllBlocksCleared(), chain([7])))])
    pool, left = made.device, 100
    assert len(pool) == 1 and pool.tier.counts[BlockState.CACHED] == 1
    while pool._forgotten:
        now = sum(map(len, pool._forgotten))
        assert 0 < left - now <= 30
        left = now
        pool.draw()
    assert len(pool) == 1


@pytest.mark.parametrize(
    ("text", "blocks", "size", "usage"),
    [
        ('vllm:cache_config_info{block_size="16",num_gpu_blocks="7654"} 1.0\nvllm:kv_cache_usage_perc{m="x"} 0.25',
         7654, 16, 0.25),
        ("# HELP x\nsglang:max_total_num_tokens 5000\nsglang:token_usage{a=\"b\"} 0.5\n", 5000, 1, 0.5),
        ('vllm:cache_config_info{num_gpu_blocks="-9",block_size="16"} 1\nvllm:kv_cache_usage_perc 1e9', 0, 0, 1.0),
        ("sglang:max_total_num_tokens -7\nsglang:token_usage -3", 0, 0, 0.0),
        ("nothing of the kind 7\nvllm:cache_config_info{num_gpu_blocks=\"None\"} 1\n", 0, 0, None),
    ],
)  # fmt: skip
def test_figures_of_servers_are_read(text: str, blocks: int, size: int, usage: float | None) -> None:
    assert server_metrics.parse(text) == server_metrics.CacheFigures(blocks, size, usage)


# --- the window -------------------------------------------------------------------------------------------------------


class Server:
    """A publisher of events in either form."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:*") -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.set(zmq.XPUB_VERBOSE, 1)
        self._socket.bind(endpoint)
        self.source = Source(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0"))
        self.sequence = 5  # it has published before

    def wait_for_subscriber(self) -> None:
        while self._socket.poll(WAIT_MS):
            if self._socket.recv()[:1] == b"\1":  # else somebody left
                return
        pytest.fail("nobody came")

    def tell(self, *events: Any, whole: bool = False) -> None:
        batch: Any = {"ts": time.time(), "events": events} if whole else [time.time(), events]
        self._socket.send_multipart([b"", struct.pack(">Q", self.sequence), msgspec.msgpack.encode(batch)])
        self.sequence += 1

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.term()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def attached(server: Server, languages: Languages, qtbot: QtBot) -> Iterator[AttachedWindow]:
    made = AttachedWindow(AttachedLink(server.source))
    qtbot.addWidget(made, before_close_func=lambda widget: widget.close())
    made.show()
    server.wait_for_subscriber()
    yield made


def test_both_forms_are_drawn_and_the_map_says_that_it_is_partial(
    attached: AttachedWindow, server: Server, qtbot: QtBot
) -> None:
    assert "Nothing was told yet" in attached._invitation._text.text()
    qtbot.waitUntil(lambda: attached._facts.text() == "connected", timeout=WAIT_MS)
    server.tell(["BlockStored", [1, -2], None, [1, 2, 3, 4], 2, None])
    stored = {
        "type": "BlockStored",
        "block_hashes": [b"x"],
        "parent_block_hash": 1,
        "token_ids": [5, 6],
        "block_size": 2,
    }
    server.tell(stored | {"medium": "CPU"}, stored, whole=True)
    qtbot.waitUntil(lambda: attached._link.sequence == 6, timeout=WAIT_MS)
    device = attached.views["GPU"]
    assert device.canvas.image.tier.counts[BlockState.CACHED] == 3 and set(attached.views) == {"GPU", "CPU"}
    assert "3 blocks × 2 tokens = 6 tokens" in device._figures.text()
    assert "Partial since attach" in attached._notice.text() and attached._notice.isVisible()
    assert not attached._invitation.isVisible()
    device.canvas.blockClicked.emit(2)
    assert device.canvas.image.traced.tolist() == [0, 2]
    device.canvas.blockHovered.emit(2)
    assert device._card.isVisible()
    assert "5 6" in device._card._text.text() and "block 2 of its prefix" in device._card._body.text()
    server.tell({"type": "BlockRemoved", "block_hashes": [b"x"]})
    qtbot.waitUntil(lambda: attached._link.sequence == 7, timeout=WAIT_MS)
    assert device.canvas.selected is None and not device._card.isVisible()


def test_letting_go_keeps_the_map_and_attaching_again_begins_anew(
    attached: AttachedWindow, server: Server, qtbot: QtBot
) -> None:
    server.tell(["BlockStored", [1], None, [1, 2], 2, None])
    qtbot.waitUntil(lambda: attached._link.sequence == 5, timeout=WAIT_MS)
    attached.disconnecting.click()
    assert not attached._link.open and attached.disconnecting.text() == "Attach again"
    assert "disconnected" in attached._facts.text() and len(attached._link.cache.device) == 1
    attached.disconnecting.click()
    assert attached._link.open and not len(attached._link.cache.device)
    server.wait_for_subscriber()
    server.tell(["BlockStored", [2], None, [1, 2], 2, None])
    qtbot.waitUntil(lambda: attached._link.sequence == 6, timeout=WAIT_MS)
    assert [block.hash for block in attached._link.cache.device.blocks.values()] == [2]


def test_a_flood_leaves_the_window_its_time(
    attached: AttachedWindow, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    clock = Clock()

    def pass_by() -> float:
        clock.now += 0.001
        return clock.now

    monkeypatch.setattr(clock, "monotonic", pass_by)
    monkeypatch.setattr("pagedeck.gui.attached.link.time", clock)
    link, pool = attached._link, attached._link.cache.device
    seen: list[int] = []
    link.changed.connect(lambda: seen.append(len(pool)))
    link._put([EventBatch(1100.0, (chain([n]),)) for n in range(50)])
    qtbot.waitUntil(lambda: len(pool) == 50, timeout=WAIT_MS)
    assert seen[0] < 20 and len({*seen}) > 3


def test_a_reader_waits_where_the_window_does_not_keep_up(
    server: Server, languages: Languages, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    monkeypatch.setattr("pagedeck.gui.attached.link._INBOX_MAX", 10)
    monkeypatch.setattr("pagedeck.ipc.kv_subscriber.READ_MAX", 5)
    taken: list[int] = []
    link = AttachedLink(server.source)
    server.wait_for_subscriber()
    put = link._put
    monkeypatch.setattr(link, "_put", lambda items: (put(items), taken.append(len(link._inbox))))
    for n in range(200):
        server.tell(["BlockStored", [n], None, [1, 2], 2, None])
    qtbot.waitUntil(lambda: len(link.cache.device) == 200, timeout=WAIT_MS)
    assert max(taken) <= 15 and not link.lost
    link.close()


def test_the_window_says_whether_the_server_is_there(
    languages: Languages, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    monkeypatch.setattr("pagedeck.gui.attached.link.PATIENCE_MS", 1)
    first = Server()
    source = first.source
    first.close()
    window = AttachedWindow(AttachedLink(source))
    qtbot.addWidget(window, before_close_func=lambda widget: widget.close())
    window.show()
    qtbot.waitUntil(lambda: "waiting for the server" in window._facts.text(), timeout=WAIT_MS)
    assert f"No server was found at {source.endpoint}" in window._invitation._text.text()
    again = Server(source.endpoint)
    again.wait_for_subscriber()
    qtbot.waitUntil(lambda: window._facts.text() == "connected", timeout=WAIT_MS)
    assert "Nothing was told yet" in window._invitation._text.text()
    again.tell(["BlockStored", [1], None, [1, 2], 2, None])
    qtbot.waitUntil(lambda: len(window._link.cache.device) == 1, timeout=WAIT_MS)
    again.close()
    qtbot.waitUntil(lambda: "the server is gone, and awaited" in window._facts.text(), timeout=WAIT_MS)


def test_it_speaks_chinese_and_colours_by_age(
    attached: AttachedWindow, server: Server, languages: Languages, qtbot: QtBot
) -> None:
    attached.colouring.setCurrentIndex(1)
    assert attached.views["GPU"].canvas.image.colouring is Colouring.AGE
    languages.switch(Language.CHINESE)
    qtbot.waitUntil(lambda: attached.fit.text() == "适应窗口", timeout=WAIT_MS)
    assert "Disconnect" not in attached.disconnecting.text()


def test_the_dialog_says_why_an_address_is_refused(languages: Languages, qtbot: QtBot) -> None:
    dialog = AttachDialog(None)
    qtbot.addWidget(dialog)
    dialog.show()
    made: list[AttachedLink] = []
    dialog.attached.connect(made.append)
    dialog.endpoint.setText("nowhere")
    dialog.accept()
    assert "endpoint is 'nowhere'" in dialog.refusal.text() and dialog.isVisible()
    dialog.endpoint.setText("tcp://127.0.0.1:*")
    dialog.bind.setChecked(True)
    dialog.accept()
    assert not dialog.isVisible() and made[0].address.startswith("tcp://127.0.0.1:")
    made[0].close()


class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(
            b'vllm:cache_config_info{num_gpu_blocks="256",block_size="16"} 1\nvllm:kv_cache_usage_perc 0.5\n'
        )

    def log_message(self, *_arguments: Any) -> None:
        pass


class Broken(http.server.BaseHTTPRequestHandler):
    """A web server that answers each path in another wrong way."""

    def do_GET(self) -> None:
        if self.path == "/gone":
            self.send_error(404, "Not Found")
        elif self.path == "/garbage":
            self.wfile.write(b"\0\1\2 garbage\r\n\r\n")
        elif self.path == "/cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n")
        elif self.path == "/page":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>vllm</html>")
        else:  # without end
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"vllm:x 1\n" * 10)

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def broken() -> Iterator[str]:
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{web.server_port}"
    web.shutdown()
    web.server_close()


@pytest.mark.parametrize(
    ("path", "why"),
    [("/gone", "HTTP 404 Not Found"), ("/garbage", "not an answer of a web server"),
     ("/cut", "not an answer of a web server"), ("/page", "no figures of a KV cache")],
)  # fmt: skip
def test_what_a_broken_web_server_answers_is_said(broken: str, path: str, why: str) -> None:
    with pytest.raises((OSError, ValueError), match=why):
        server_metrics.read(broken + path)


def test_an_answer_without_end_is_not_awaited(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(server_metrics, "time", clock)
    monkeypatch.setattr(clock, "monotonic", itertools.count().__next__)
    with pytest.raises(TimeoutError):
        server_metrics.read(broken + "/")


@pytest.mark.parametrize("url", ["http://127.0.0.1:port/metrics", "http://[::1/metrics", "http://127.0.0.1:1/x y"])
def test_an_address_of_figures_that_is_none_is_said(url: str) -> None:
    with pytest.raises((OSError, ValueError)):
        server_metrics.read(url)


def test_figures_that_come_no_more_are_shown_no_more(attached: AttachedWindow, qtbot: QtBot) -> None:
    link = attached._link
    attached._link.cache.apply([EventBatch(1100.0, (chain([1]),))])
    link._put([server_metrics.CacheFigures(256, 4, 0.5)])
    qtbot.waitUntil(lambda: "in use by requests, says the server: 50" in attached.views["GPU"]._figures.text())
    link._put([OSError("Connection refused")])
    qtbot.waitUntil(lambda: "cannot be read: Connection refused" in attached._notice.text())
    shown = attached.views["GPU"]._figures.text()
    assert "says the server" not in shown and "of 256 blocks" in shown


def test_our_own_engine_is_shown_whole_with_its_capacity(
    engine_process: Callable[..., AbstractContextManager[Any]], languages: Languages, qtbot: QtBot
) -> None:
    from pagedeck.ipc.client import Client

    web = http.server.HTTPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    loopback = "tcp://127.0.0.1:*"
    with engine_process(kv_events=loopback, kv_events_replay=loopback) as engine:
        said = next(line for line in engine.log if "Cache events" in line)
        address, replay = (word.strip(",") for word in said.split() if word.startswith("tcp://"))
        with Client(engine.connection) as client:
            client.submit(token_ids=list(range(1, 50)), max_tokens=4).token_ids()
            source = Source(address, replay, f"http://127.0.0.1:{web.server_port}/metrics")
            window = AttachedWindow(AttachedLink(source))
            qtbot.addWidget(window, before_close_func=lambda widget: widget.close())
            window.show()
            pool = window._link.cache.device
            qtbot.waitUntil(lambda: len(pool) == 3 and pool.capacity == 256, timeout=WAIT_MS)
            assert not window._link.partial and not window._notice.isVisible()
            assert pool.blocks[0].token_ids == tuple(range(1, 17)) and pool.tier.num_blocks == 256
            client.submit(token_ids=list(range(1, 80)), max_tokens=4).token_ids()
            qtbot.waitUntil(lambda: len(pool) == 5, timeout=WAIT_MS)
            assert pool.lineage(4) == [0, 1, 2, 3, 4]
            assert "of 256 blocks" in window.views["GPU"]._figures.text()
    web.shutdown()
    web.server_close()


def test_the_menu_opens_a_window_that_ends_with_the_apps(window: MainWindow, server: Server, qtbot: QtBot) -> None:
    window.files.attaching.trigger()
    dialog = window.findChild(AttachDialog)
    assert dialog is not None and dialog.isVisible()
    dialog.endpoint.setText(server.source.endpoint)
    dialog.accept()
    [opened] = window.files.attached
    assert opened.isVisible() and opened._link.source == server.source
    server.wait_for_subscriber()
    window.close()
    assert not window.files.attached and not opened._link.open


def test_the_command_says_why_it_cannot_attach() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pagedeck", "attach", "nowhere"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen"},
    )
    assert done.returncode == 1 and "endpoint is 'nowhere'" in done.stderr


def test_the_command_shows_a_window_until_it_is_told_to_end(server: Server) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pagedeck", "attach", server.source.endpoint],
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen"},
    )
    try:
        server.wait_for_subscriber()
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
