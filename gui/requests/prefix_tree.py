"""A block's place in the prefix tree: the path that leads to it, and the blocks that continue it, as links."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from ...ipc.protocol import BlockDetail, PrefixBlock
from .. import quantities, theme, words
from ..i18n import Translated, fill_in

# So many of the nearest ancestors and of the children are shown.
ANCESTORS, CHILDREN = 8, 12


class PrefixTree(Translated, QWidget):
    """Each block with how many block tables hold it. Nothing of a block that is not in the prefix tree."""

    chosen = Signal(str, int)  # tier and block

    def __init__(self) -> None:
        super().__init__()
        self._detail: BlockDetail | None = None
        self.title = QLabel()
        self.title.setProperty("role", "muted")
        self.path = QLabel(wordWrap=True, textFormat=Qt.TextFormat.RichText)
        self.children_title = QLabel()
        self.children_title.setProperty("role", "muted")
        self.continued = QLabel(wordWrap=True, textFormat=Qt.TextFormat.RichText)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.GRID // 2)
        for label in (self.title, self.path, self.children_title, self.continued):
            label.setFont(theme.number_font(label.font()))
            layout.addWidget(label)
        for label in (self.path, self.continued):
            label.setTextInteractionFlags(
                Qt.TextInteractionFlag.LinksAccessibleByMouse | Qt.TextInteractionFlag.LinksAccessibleByKeyboard
            )
            label.linkActivated.connect(self._follow)

    def show_detail(self, detail: BlockDetail | None) -> None:
        self._detail = detail
        self.setVisible(detail is not None and detail.depth > 0)
        if detail is None or not detail.depth:
            return
        self.title.setText(fill_in(self.tr("Prefix tree: block %1 of its prefix"), quantities.count(detail.depth)))
        self.path.setText(self._path(detail))
        self.children_title.setText(self._continued_by(detail))
        more = detail.child_count - CHILDREN
        lines = [f"└&nbsp;{self._link(child)}" for child in detail.children[:CHILDREN]]
        if more > 0:
            lines.append(fill_in(self.tr("and %1 more"), quantities.count(more)))
        self.continued.setText("<br>".join(lines))
        self.continued.setVisible(bool(lines))

    def _path(self, detail: BlockDetail) -> str:
        nearest = detail.ancestors[-ANCESTORS:]
        parts = [self._link(node) for node in nearest]
        hidden = detail.depth - 1 - len(nearest)
        if hidden > 0:
            parts.insert(0, self.tr("%Ln block(s) before", "", hidden))
        own = f"<b>{detail.block}</b>&nbsp;{self._uses(detail.ref_count)}"
        return " → ".join([*parts, own])

    def _continued_by(self, detail: BlockDetail) -> str:
        if not detail.child_count:
            return self.tr("No full block continues it.")
        return self.tr("Continued by %Ln block(s)", "", detail.child_count)

    def _link(self, node: PrefixBlock) -> str:
        where = "" if self._detail is None or node.tier == self._detail.tier else f"{words.tier(node.tier)} "
        return f'<a href="{node.tier} {node.block}">{where}{node.block}</a>&nbsp;{self._uses(node.ref_count)}'

    def _uses(self, count: int) -> str:
        """How many hold a block; none hold what is only cached."""
        colour = theme.current().palette.muted
        text = f"×{quantities.count(count)}" if count else self.tr("cached")
        return f'<span style="color:{colour}">{text}</span>'

    def _follow(self, link: str) -> None:
        tier, block = link.split()
        self.chosen.emit(tier, int(block))

    def retranslate(self) -> None:
        self.title.setToolTip(self.tr("× is how many block tables hold a block."))
        self.show_detail(self._detail)
