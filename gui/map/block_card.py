"""The card of a block: its whole story beside the pointer."""

from __future__ import annotations

from dataclasses import dataclass

from ...ipc.protocol import BlockDetail
from ...ipc.telemetry import RequestRow
from ...ipc.vocabulary import BlockState
from .. import quantities, theme, words
from ..card import BlockStory


@dataclass(frozen=True)
class BlockFacts:
    tier: str
    block: int
    state: BlockState
    owner: int
    row: RequestRow | None
    fill: int
    block_size: int
    references: int
    last_used: int
    step: int
    detail: BlockDetail | None


class BlockCard(BlockStory):
    """A block's story beside the pointer: what the telemetry tells at once, what the engine adds when asked."""

    def write(self, facts: BlockFacts) -> None:
        colour = theme.current().palette.states[facts.state]
        name = self.tr("Block %1").replace("%1", quantities.count(facts.block))
        self._head.setText(f'<span style="color:{colour}">■</span> <b>{name}</b> · {words.block_state(facts.state)}')
        lines = self._lines(facts)
        self._body.setText("\n".join(lines))
        self._body.setVisible(bool(lines))
        text = facts.detail.text if facts.detail is not None else ""
        self._text.setText(text)
        self._text.setVisible(bool(text))

    def _lines(self, facts: BlockFacts) -> list[str]:
        lines = []
        if facts.owner:
            lines.append(self._owner(facts))
        if facts.state > BlockState.RESERVED:
            lines.append(
                self.tr("%1 of %2 tokens · reference count %3")
                .replace("%1", quantities.count(facts.fill))
                .replace("%2", quantities.count(facts.block_size))
                .replace("%3", quantities.count(facts.references))
            )
        if facts.last_used:
            lines.append(
                self.tr("last used in step %1 (%2 ago)")
                .replace("%1", quantities.count(facts.last_used))
                .replace("%2", quantities.count(max(0, facts.step - facts.last_used)))
            )
        return lines + self._described(facts.detail, facts.block_size)

    def _address(self, detail: BlockDetail, block_size: int) -> str:
        """Where the block lies, and where its content lies besides."""
        address = self.tr("%1 slots %2").replace("%1", words.tier(detail.tier))
        address = address.replace("%2", words.slots(detail.block, block_size))
        copy = words.copy_of(detail)
        also = self.tr("copy in %1").replace("%1", copy)
        return f"{address} · {also}" if copy else address

    def _owner(self, facts: BlockFacts) -> str:
        text = self.tr("request #%1").replace("%1", str(facts.owner))
        if facts.row is None:
            return text
        return f"{text} · {facts.row.id[:24]} · {words.priority(facts.row.priority)}"

    def _described(self, detail: BlockDetail | None, block_size: int) -> list[str]:
        if detail is None:
            return []
        lines = [
            self.tr("held by %1").replace("%1", words.holder(owner.request, owner.sample, owner.position))
            for owner in detail.owners[:4]
        ]
        if len(detail.owners) > 4:
            lines.append(self.tr("and %1 more").replace("%1", quantities.count(len(detail.owners) - 4)))
        if detail.prefix_hash:
            lines.append(self.tr("prefix hash %1").replace("%1", detail.prefix_hash[:12]))
        if detail.depth:
            place = self.tr("block %1 of its prefix, continued by %2")
            continued = quantities.count(detail.child_count)
            lines.append(place.replace("%1", quantities.count(detail.depth)).replace("%2", continued))
        lines.append(self._address(detail, block_size))
        return lines
