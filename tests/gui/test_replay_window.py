"""The window records, replays, exports: what is seen, what can be done meanwhile, what is said when it fails."""

from __future__ import annotations

import csv
import errno
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pagedeck.cli import main
from pagedeck.gui import i18n
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.recording.replay_bar import played
from pagedeck.gui.state import LATENCY_COLUMNS, STEP_COLUMNS
from pagedeck.ipc.protocol import Failed, Ping, Reconfigure
from pagedeck.ipc.telemetry import Event
from PySide6.QtCore import QMimeData, QPointF, QRect, Qt, QUrl
from PySide6.QtGui import QDropEvent, QImage
from pytestqt.qtbot import QtBot

from .feeder import Feeder
from .scripted_link import ScriptedLink

SOON_MS = 10_000


@pytest.fixture
def feeder(link: ScriptedLink, window: MainWindow, tmp_path: Path) -> Feeder:
    made = Feeder(num_blocks=400, block_size=16, host_blocks=0, seed=2)
    link.view.begin(made.epoch)
    link.become_ready(made.status())
    link.view.apply_snapshot(made.snapshot())
    window.recorder.folder = tmp_path / "recordings"
    return made


def feed(link: ScriptedLink, feeder: Feeder, times: int = 8) -> None:
    for _ in range(times):
        link.tell(feeder.advance(4, arrivals=0.5, stats=True))


@pytest.fixture
def recorded(window: MainWindow, link: ScriptedLink, feeder: Feeder) -> Path:
    """A recording made by the window's button. What it ends with is not what the engine shows any more."""
    window.toolbar.record_button.click()
    path = window.recorder.path
    assert path is not None
    feed(link, feeder)
    window.toolbar.record_button.click()
    feed(link, feeder)
    return path


@pytest.fixture
def replaying(window: MainWindow, recorded: Path, qtbot: QtBot) -> Iterator[MainWindow]:
    window.open_recording(recorded)
    qtbot.waitUntil(lambda: window.player.ready, timeout=SOON_MS)
    window.player.pause()
    yield window
    window.player.close()


def press(window: MainWindow, key: Qt.Key, qtbot: QtBot) -> None:
    qtbot.keyClick(window.replay_bar.slider, key)


def drawn(window: MainWindow) -> np.ndarray:
    """The states that the map draws."""
    window.map.refresh()
    return window.map.pools["device"].canvas.image.tier.state.copy()


def test_the_button_records_and_says_where(window: MainWindow, link: ScriptedLink, feeder: Feeder) -> None:
    button = window.toolbar.record_button
    assert button.isEnabled() and not button.isChecked()
    button.click()
    path = window.recorder.path
    assert path is not None and path.parent == window.recorder.folder and button.isChecked()
    feed(link, feeder)
    button.click()
    assert not button.isChecked() and not window.recorder.recording
    assert str(path) in window.said.text()
    assert path.read_bytes().startswith(b"PAGEDECK")


def test_recordings_of_one_second_are_files_of_their_own(window: MainWindow, feeder: Feeder) -> None:
    paths = []
    for _ in range(3):
        window.files.record.trigger()
        paths.append(window.recorder.path)
        window.files.record.trigger()
    assert len(set(paths)) == 3 and all(path is not None and path.stat().st_size for path in paths)


def test_a_replay_shows_the_recording_and_then_the_engine_again(
    replaying: MainWindow, link: ScriptedLink, feeder: Feeder
) -> None:
    window, live = replaying, link.live
    replay = window.player.replay
    assert replay is not None and window.replay_bar.isVisible()
    window.player.seek(replay.end)  # it was paused when it had hardly begun
    number = next(iter(replay.view.requests))
    window.selection.select_request(number)
    window.player.seek(replay.end)
    assert window.selection.request == number
    np.testing.assert_array_equal(drawn(window), replay.view.device.state)
    assert not np.array_equal(drawn(window), live.device.state)
    window.rail.choose("requests")
    window.requests.refresh()
    assert window.requests.model.rowCount() == len(replay.view.requests)
    window.rail.choose("map")
    feed(link, feeder)
    np.testing.assert_array_equal(drawn(window), replay.view.device.state)
    window.replay_bar.back_button.click()
    assert not window.replay_bar.isVisible() and not link.replaying and link.view is live
    assert window.selection.request is None  # the engine's number of that name is another request
    np.testing.assert_array_equal(drawn(window), feeder.device.state)
    assert len(link.view.steps) == 24 * 4


def test_nothing_can_be_changed_in_a_recording(replaying: MainWindow, qtbot: QtBot) -> None:
    bar = replaying.toolbar
    for button in (bar.engine_button, bar.start_button, bar.stop_button, bar.restart_button, bar.record_button):
        assert not button.isEnabled()
    assert not replaying.playground.isEnabled() and not replaying.settings_panel.isEnabled()
    replaying.player.close()
    assert bar.engine_button.isEnabled() and bar.stop_button.isEnabled() and bar.record_button.isEnabled()
    assert replaying.playground.isEnabled() and replaying.settings_panel.isEnabled()


def test_a_link_that_replays_answers_views_itself(qtbot: QtBot) -> None:
    from pagedeck.gui.link import EngineLink
    from pagedeck.gui.state import EngineView

    link = EngineLink()
    link.show(EngineView())
    got: list[object] = []
    for message in (Reconfigure(changes={"block_size": 16}), Ping()):
        link.request(message, got.append)
    qtbot.waitUntil(lambda: len(got) == 2, timeout=SOON_MS)
    refused, unconnected = got
    assert isinstance(refused, Failed) and refused.message.startswith("This is a recording")
    assert isinstance(unconnected, Failed) or unconnected


def test_keys_steer_a_replay(replaying: MainWindow, qtbot: QtBot) -> None:
    window, player = replaying, replaying.player
    assert window.replay_bar.slider.hasFocus() or not window.isActiveWindow()
    player.seek(0)
    press(window, Qt.Key.Key_Space, qtbot)
    assert player.playing
    press(window, Qt.Key.Key_Space, qtbot)
    assert not player.playing
    window.replay_bar.slider.setValue(0)
    assert player.replay is not None
    player.replay.end = 60_000  # as if it were a minute long
    player.seek(0)
    press(window, Qt.Key.Key_Right, qtbot)
    qtbot.waitUntil(lambda: player.replay is not None and player.replay.at == 1_000, timeout=SOON_MS)
    qtbot.keyClick(window, Qt.Key.Key_Right)
    assert player.replay.at == 6_000
    qtbot.keyClick(window, Qt.Key.Key_Left)
    assert player.replay.at == 1_000
    press(window, Qt.Key.Key_Escape, qtbot)
    assert player.replay is None


def test_playing_goes_on_at_its_speed_to_the_end(replaying: MainWindow, qtbot: QtBot) -> None:
    player = replaying.player
    replay = player.replay
    assert replay is not None
    replay.end = 1600
    player.seek(0)
    player.set_speed(16.0)
    player.play()
    qtbot.waitUntil(lambda: not player.playing, timeout=SOON_MS)
    assert replay.at == replay.end
    player.play()
    assert replay.at < replay.end  # from the beginning again


def test_a_recording_that_is_changed_while_it_is_shown_gives_way_to_the_engine(
    replaying: MainWindow, recorded: Path
) -> None:
    assert replaying.player.replay is not None
    replaying.player.seek(replaying.player.replay.end)
    recorded.write_bytes(bytes(recorded.stat().st_size))
    replaying.player.seek(0)
    assert replaying.player.replay is None and not replaying.session.link.replaying
    assert "was changed while it was shown" in replaying.said.text()


def test_what_cannot_be_played_ends_the_playing_with_a_word(
    replaying: MainWindow, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    def garbage(*_: object) -> object:
        raise ValueError("not a message")

    monkeypatch.setattr("pagedeck.gui.recording.replay._apply", garbage)
    replaying.player.play()
    qtbot.waitUntil(lambda: replaying.player.replay is None, timeout=SOON_MS)
    assert "not a message" in replaying.said.text() and not replaying.player.playing


def test_a_dropped_recording_opens(window: MainWindow, recorded: Path, qtbot: QtBot) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(recorded))])
    copy, buttons, keys = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    window.dropEvent(QDropEvent(QPointF(5, 5), copy, data, buttons, keys))
    qtbot.waitUntil(lambda: window.player.ready, timeout=SOON_MS)
    assert window.player.replay is not None and window.player.replay.recording.path == recorded
    window.player.close()


def test_a_file_that_is_none_is_said_to_be_none_and_changes_nothing(
    window: MainWindow, link: ScriptedLink, languages: i18n.Languages, tmp_path: Path
) -> None:
    wrong = tmp_path / "notes.pagedeck"
    wrong.write_text("milk, bread")
    window.open_recording(wrong)
    assert window.said.text() == "notes.pagedeck is not a recording of Pagedeck."
    languages.switch(i18n.Language.CHINESE)
    window.open_recording(wrong)
    assert window.said.text() == "notes.pagedeck 不是 Pagedeck 的录制文件。"
    window.open_recording(tmp_path / "nowhere.pagedeck")
    assert window.player.replay is None and not link.replaying


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_ends_the_recording_in_words(
    window: MainWindow, link: ScriptedLink, feeder: Feeder, tmp_path: Path, qtbot: QtBot
) -> None:
    with pytest.raises(OSError):
        window.recorder.start("full", Path("/dev/full"))
    assert not window.recorder.recording
    window.recorder.start("later", tmp_path / "later.pagedeck")
    thread = window.recorder._thread
    assert thread is not None
    thread.writer._file.close()
    thread.writer._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    feed(link, feeder, 2)
    qtbot.waitUntil(lambda: not window.recorder.recording, timeout=SOON_MS)
    assert window.said.text().startswith("The recording ended: the disk is full.")
    feed(link, feeder, 1)
    window.toolbar.record_button.click()
    assert window.recorder.recording
    window.files.stop_recording()


def test_tables_and_picture_hold_what_is_shown(
    window: MainWindow, link: ScriptedLink, feeder: Feeder, tmp_path: Path
) -> None:
    feed(link, feeder)
    view, files = link.view, window.files
    for name, save in (
        ("requests.csv", files.save_requests),
        ("steps.csv", files.save_steps),
        ("latency.csv", files.save_latency),
        ("map.png", files.save_picture),
    ):
        files.save(tmp_path / name, save)
        assert window.said.text() == f"Exported to {tmp_path / name}"

    def table(name: str) -> list[dict[str, str]]:
        with (tmp_path / name).open(encoding="utf-8", newline="") as file:
            return [*csv.DictReader(file)]

    requests = table("requests.csv")
    assert [int(row["number"]) for row in requests] == sorted(view.requests)
    first = view.requests[int(requests[0]["number"])]
    assert (requests[0]["id"], requests[0]["state"]) == (first.id, first.state)
    assert requests[0]["ttft_s"] == ("" if first.ttft_s is None else str(first.ttft_s))
    steps = table("steps.csv")
    for column in STEP_COLUMNS:
        np.testing.assert_array_equal([float(row[column]) for row in steps], view.steps.column(column))
    latency = table("latency.csv")
    for column in LATENCY_COLUMNS:
        numbers = [float(row[column] or "nan") for row in latency]
        np.testing.assert_array_equal(numbers, view.latency.column(column))
    assert QImage(str(tmp_path / "map.png")).width() == round(window.map.width() * window.devicePixelRatio())
    files.save(tmp_path / "no" / "folder.csv", files.save_steps)
    assert window.said.text().startswith(f"{tmp_path / 'no' / 'folder.csv'} was not written")


def test_the_picture_is_of_now_while_another_page_is_shown(
    window: MainWindow, link: ScriptedLink, feeder: Feeder, tmp_path: Path
) -> None:
    window.rail.choose("map")
    window.map.refresh()
    window.rail.choose("log")
    feed(link, feeder)
    window.files.save(tmp_path / "map.png", window.files.save_picture)
    window.rail.choose("map")
    shown = window.map.pools["device"].canvas
    there = shown.mapTo(window.map, shown.rect().topLeft())
    saved = QImage(str(tmp_path / "map.png")).copy(QRect(there, shown.size()))
    assert saved == shown.grab().toImage().convertToFormat(saved.format())


def test_an_export_that_fails_leaves_what_was_there(window: MainWindow, tmp_path: Path) -> None:
    before = tmp_path / "steps.csv"
    before.write_text("yesterday's")

    def fill_the_disk(path: Path) -> None:
        path.write_text("half a li")
        raise OSError(errno.ENOSPC, "No space left on device")

    window.files.save(before, fill_the_disk)
    assert window.said.text() == f"{before} was not written: the disk is full"
    assert before.read_text() == "yesterday's" and [*tmp_path.glob("*.part")] == []


def test_closing_the_window_completes_the_recording(
    window: MainWindow, link: ScriptedLink, feeder: Feeder, qtbot: QtBot
) -> None:
    from pagedeck.gui.recording.file import Recording

    window.recorder.start("test", window.recorder.folder.parent / "open.pagedeck")
    path = window.recorder.path
    feed(link, feeder, 2)
    window.close()
    assert path is not None and not Recording(path).torn


def test_places_are_written_as_people_write_them() -> None:
    assert [played(ms) for ms in (0, 999, 12_000, 63_000, 3_723_000)] == ["0:00", "0:00", "0:12", "1:03", "1:02:03"]


def test_the_command_line_refuses_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "notes.pagedeck"
    wrong.write_bytes(b"PAGEDECK\x09\x00")
    assert main(["replay", str(wrong)]) == 1
    assert "is a recording of version 9; this Pagedeck reads version 1." in capsys.readouterr().err
    assert main([str(tmp_path / "nowhere.pagedeck")]) == 1
    assert "could not be read: No such file or directory." in capsys.readouterr().err


def test_the_log_shows_what_was_said_until_the_moment_shown(
    window: MainWindow, link: ScriptedLink, feeder: Feeder, qtbot: QtBot
) -> None:
    log = window.log

    def texts() -> list[str]:
        log.show_pending()
        return [log.model.index(row, 2).data() for row in range(log.model.rowCount())]

    window.toolbar.record_button.click()
    path = window.recorder.path
    assert path is not None
    link.tell([feeder.message(b"event", Event(feeder.epoch, 0.0, "log", "said first", "info"))])
    window.recorder._started -= 5  # as if it had begun five seconds earlier
    link.tell([feeder.message(b"event", Event(feeder.epoch, 0.0, "log", "said last", "warning"))])
    window.toolbar.record_button.click()
    link.tell([feeder.message(b"event", Event(feeder.epoch, 0.0, "log", "said afterwards", "info"))])
    window.rail.choose("log")
    assert "said afterwards" in texts()

    window.open_recording(path)
    qtbot.waitUntil(lambda: window.player.ready, timeout=SOON_MS)
    window.player.pause()
    window.player.seek(2_000)
    assert texts() == ["said first"]
    assert window.player.replay is not None
    window.player.seek(window.player.replay.end)
    assert texts() == ["said first", "said last"]
    log.level.setCurrentIndex(2)
    assert texts() == ["said last"]
    log.level.setCurrentIndex(1)
    log.search.setText("FIRST")
    assert texts() == ["said first"]
    log.search.clear()
    window.player.seek(2_000)
    assert texts() == ["said first"]
    window.player.close()
    assert {"said first", "said last", "said afterwards"} <= {*texts()}
