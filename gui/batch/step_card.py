"""The card of a step: who was in it, and why others were not."""

from __future__ import annotations

import time
from collections import Counter

from ...ipc.telemetry import StepRecord
from ...ipc.vocabulary import Hold
from .. import quantities, words
from ..card import HeadedCard
from ..i18n import fill_in
from ..link import EngineLink

NAMED = 8  # requests that the card lists by name


class StepCard(HeadedCard):
    """Who was in a step, how long it took, and who had to wait or give way."""

    def write(self, record: StepRecord, link: EngineLink) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(record.time))
        name = self.tr("Step %1").replace("%1", quantities.count(record.step))
        whole = record.schedule_ms + record.forward_ms + record.sample_ms + record.other_ms
        self._head.setText(f"<b>{name}</b> · {clock} · {quantities.duration(whole / 1000)}")
        lines = [
            self.tr("%1 prefill + %2 decode of %3 tokens")
            .replace("%1", quantities.count(record.prefill_tokens))
            .replace("%2", quantities.count(record.decode_tokens))
            .replace("%3", quantities.count(record.budget)),
            self.tr("%1 running · %2 waiting · %3 swapped out")
            .replace("%1", quantities.count(record.running))
            .replace("%2", quantities.count(record.waiting))
            .replace("%3", quantities.count(record.swapped)),
        ]
        lines += self._shares(record, link) + self._gave_way(record) + self._waited(record)
        self._body.setText("\n".join(lines))

    def _shares(self, record: StepRecord, link: EngineLink) -> list[str]:
        """The largest shares of the step, one a line."""
        tokens: Counter[tuple[int, bool]] = Counter()  # samples of a request are one share
        for entry in record.entries:
            tokens[entry.request, entry.prefill] += entry.tokens
        shares = sorted(tokens.items(), key=lambda share: (-share[1], share[0]))
        lines = []
        for (request, prefill), amount in shares[:NAMED]:
            kind = self.tr("prefill") if prefill else self.tr("decode")
            line = f"#{request} · {kind} {quantities.count(amount)}"
            row = link.view.requests.get(request)
            lines.append(f"{line} · {words.priority(row.priority)}" if row is not None else line)
        if len(shares) > NAMED:
            lines.append(self.tr("and %1 more").replace("%1", quantities.count(len(shares) - NAMED)))
        return lines

    def _waited(self, record: StepRecord) -> list[str]:
        """Who was next in line, and for what the first of them waited."""
        if not record.waited:
            return []
        more = record.waiting + record.swapped > len(record.waited)
        named = " ".join(f"#{number}" for number in record.waited) + (" …" if more else "")
        reasons = {
            Hold.BATCH: self.tr("all places in the batch were taken"),
            Hold.CLASS: self.tr("all places of its class were taken"),
            Hold.BUDGET: self.tr("the token budget was spent on others"),
            Hold.BLOCKS: self.tr("too few blocks were to be had"),
        }
        lines = [self.tr("waited: %1").replace("%1", named)]
        if record.hold in reasons:
            why = self.tr("#%1 waited because %2")
            lines.append(fill_in(why, str(record.waited[0]), reasons[Hold(record.hold)]))
        return lines

    def _gave_way(self, record: StepRecord) -> list[str]:
        named = (
            (self.tr("preempted: %1"), record.preempted),
            (self.tr("swapped out: %1"), record.swapped_out),
            (self.tr("resumed: %1"), record.resumed),
        )
        lines = []
        for text, numbers in named:
            if numbers:
                requests = list(dict.fromkeys(numbers))[:NAMED]  # of several samples' sequences, one is enough
                lines.append(text.replace("%1", " ".join(f"#{number}" for number in requests)))
        return lines
