"""A link without sockets: records what the app asks, and answers when and what the test says; and a clock that
shows what the test says."""

from __future__ import annotations

import msgspec
from pagedeck.gui.link import EngineLink, Reply
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.protocol import EngineMessage, EngineStatus, Message, SettingInfo, Submit
from pagedeck.ipc.telemetry import TelemetryMessage

SETTINGS = (
    SettingInfo("model", "tiny", "The model"),
    SettingInfo("num_blocks", 256, "Blocks of the device pool", "blocks", False, 1, 100),
    SettingInfo("block_size", 32, "Tokens in a block", "tokens", True, choices=[8, 16, 32, 64, 128, 256]),
    SettingInfo("swap_space_gib", 0.0, "Host memory", "GiB", True, 0.0, 65_536.0),
    SettingInfo("max_batch_size", 64, "The most sequences in a step", "sequences", True, 1, 65_536),
    SettingInfo("prefix_caching", True, "Share beginnings", "", True, choices=[True, False]),
)


class Clock:
    """A module's ``time``, at the test's pace."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


class ScriptedLink(EngineLink):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[Message, Reply]] = []
        self.cancelled: list[str] = []

    def request(self, message: Message, on_reply: Reply) -> None:
        self.sent.append((message, on_reply))

    def submit(self, message: Submit, on_message: Reply) -> str:
        id = f"s{len(self.sent) + 1}"
        self.sent.append((msgspec.structs.replace(message, id=id), on_message))
        return id

    def cancel(self, id: str) -> None:
        self.cancelled.append(id)

    def detach(self) -> None:
        self.say_connection(ConnectionState.DISCONNECTED)

    # --- the test's side ----------------------------------------------------------------------------------------

    def last(self, kind: type[Message]) -> tuple[Message, Reply]:
        return next((message, reply) for message, reply in reversed(self.sent) if isinstance(message, kind))

    def count(self, kind: type[Message]) -> int:
        return sum(isinstance(message, kind) for message, _ in self.sent)

    def answer(self, kind: type[Message], reply: EngineMessage) -> None:
        """Answer the last message of a kind."""
        message, on_reply = self.last(kind)
        on_reply(msgspec.structs.replace(reply, id=message.id))

    def say_connection(self, state: ConnectionState, detail: str = "", progress: float | None = None) -> None:
        self.view.set_connection(state, detail, progress)
        self.connectionChanged.emit()

    def become_ready(self, status: EngineStatus | None = None) -> None:
        self.view.status = status or EngineStatus(
            name="test", state="ready", model="tiny", epoch="e1", pid=1, version="0", context_length=4096,
            chat_template=True,
        )  # fmt: skip
        self.view.settings = [msgspec.structs.replace(info) for info in SETTINGS]
        self.say_connection(ConnectionState.READY)
        self.settingsChanged.emit()

    def tell(self, messages: list[tuple[bytes, int, TelemetryMessage]]) -> None:
        """Take telemetry as if it had come over the wire."""
        for message in messages:
            self._telemetry(*message)
        self._announce()
