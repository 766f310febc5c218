"""What the app knows of the engine stays what the engine tells, through gaps, repages and long runs."""

from __future__ import annotations

import numpy as np
import pytest
from pagedeck.gui import state
from pagedeck.gui.state import ConnectionState, EngineView, History, TierView
from pagedeck.ipc.telemetry import TOPIC_BLOCKS, TOPIC_EVENT, BlocksUpdate, Event, GroupBlocks, RequestRow
from pagedeck.ipc.vocabulary import BlockState

from .feeder import FIELDS, Feeder, Tier


def watch(feeder: Feeder) -> EngineView:
    view = EngineView()
    view.begin(feeder.epoch)
    assert view.feed.wants_snapshot()
    view.apply_snapshot(feeder.snapshot())
    return view


def assert_same(view: TierView, tier: Tier) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(view, name), getattr(tier, name))
    np.testing.assert_array_equal(view.counts, np.bincount(tier.state, minlength=6))
    held = tier.state >= BlockState.SWAPPED
    assert view.held == int(tier.fill[held].sum())
    assert view.used == int(held.sum())


def test_deltas_keep_both_tiers_true() -> None:
    feeder = Feeder(400, 16, 200, seed=3)
    view = watch(feeder)
    for _ in range(150):
        for message in feeder.advance(3, arrivals=0.4):
            view.apply(*message)
    assert any(len(r.table) for r in feeder.running)
    assert_same(view.device, feeder.device)
    assert_same(view.host, feeder.host)
    assert not view.feed.wants_snapshot()


def test_a_gap_asks_for_a_snapshot_and_holds_what_comes_meanwhile() -> None:
    feeder = Feeder(300, 16, 0, seed=4)
    view = watch(feeder)
    lost = feeder.advance(2, arrivals=1.0)
    feeder.advance(2, arrivals=1.0)
    after = feeder.advance(2, arrivals=1.0)
    for message in after:
        view.apply(*message)
    assert lost and view.feed.wants_snapshot()
    snapshot = feeder.snapshot()
    later = feeder.advance(4)
    for message in later:
        view.apply(*message)
    view.apply_snapshot(snapshot)
    assert_same(view.device, feeder.device)


def test_updates_that_a_snapshot_includes_are_not_applied_again() -> None:
    feeder = Feeder(300, 16, 0, seed=5)
    view = watch(feeder)
    old = feeder.advance(2, arrivals=1.0)
    for _ in range(40):
        feeder.advance(2, arrivals=0.3)
    view.begin(feeder.epoch)
    view.apply_snapshot(feeder.snapshot())
    for message in old:
        view.apply(*message)
    assert_same(view.device, feeder.device)


def test_statistics_tell_of_a_loss_at_the_tail() -> None:
    feeder = Feeder(300, 16, 0, seed=6)
    view = watch(feeder)
    messages = feeder.advance(3, arrivals=1.0, stats=True)
    for topic, sequence, message in messages:
        if topic != TOPIC_BLOCKS:
            view.apply(topic, sequence, message)
    assert view.feed.wants_snapshot()


def test_a_lost_event_asks_for_the_requests_again() -> None:
    feeder = Feeder(300, 16, 0, seed=6)
    view = watch(feeder)
    row = feeder.submit().row
    view.apply(*feeder.message(TOPIC_EVENT, feeder.event("submitted", row)))
    feeder.message(TOPIC_EVENT, feeder.event("finished", row))
    view.apply(*feeder.message(TOPIC_EVENT, Event(feeder.epoch, 0.0, "log", "x")))
    assert view.feed.wants_snapshot()


def test_a_full_update_changes_the_pool() -> None:
    feeder = Feeder(256, 32, 64)
    view = watch(feeder)
    before = view.device.version
    other = Feeder(512, 16, 128)
    whole = BlocksUpdate(feeder.epoch, 9, True, other.device.blocks(None), other.host.blocks(None))
    view.apply(*feeder.message(TOPIC_BLOCKS, whole))
    assert (view.device.num_blocks, view.device.block_size) == (512, 16)
    assert len(view.device.state) == 512
    assert view.host.num_blocks == 128
    assert view.device.changed_since(before) is None


def test_one_group_of_layers_is_shown_and_the_others_are_kept_up() -> None:
    feeder, window = Feeder(64, 16, 8), Feeder(24, 16, 4)
    view = watch(feeder)

    def update(full: bool) -> BlocksUpdate:
        device, host = (p.blocks(None) if full else p.delta() for p in (window.device, window.host))
        own = [p.blocks(None) if full else p.delta() for p in (feeder.device, feeder.host)]
        groups = [GroupBlocks("window 8", device, host)]
        return BlocksUpdate(feeder.epoch, 9, full, *own, name="full", groups=groups)

    view.apply(*feeder.message(TOPIC_BLOCKS, update(full=True)))
    assert (view.groups, view.group) == (["full", "window 8"], "full")
    device, version = view.device, view.device.version
    window.device.put(5, BlockState.ACTIVE, 1, 16, 3, 1)
    view.apply(*feeder.message(TOPIC_BLOCKS, update(full=False)))
    assert not view.device.state.any()
    view.show_group("window 8")
    assert view.device is device and view.device.changed_since(version) is None
    assert (view.device.num_blocks, view.host.num_blocks) == (24, 4)
    assert view.device.state.tolist() == [BlockState.ACTIVE if block == 5 else 0 for block in range(24)]
    feeder.device.put(7, BlockState.ACTIVE, 1, 16, 3, 1)
    view.apply(*feeder.message(TOPIC_BLOCKS, update(full=False)))
    assert view.device.used == 1
    view.show_group("full")
    assert np.flatnonzero(view.device.state).tolist() == [7]
    view.show_group("window 8")
    view.apply(*feeder.message(TOPIC_BLOCKS, update(full=True)))
    assert view.group == "window 8"
    alone = BlocksUpdate(feeder.epoch, 10, True, feeder.device.blocks(None), feeder.host.blocks(None))
    view.apply(*feeder.message(TOPIC_BLOCKS, alone))
    assert (view.groups, view.group, view.device.num_blocks) == ([], "", 64)


def test_a_delta_for_another_pool_is_not_applied() -> None:
    feeder, other = Feeder(64, 32, 0), Feeder(640, 16, 0)
    view = watch(feeder)
    other.submit(200, 10)
    update = other.advance(2)[-1][2]
    view.apply(*feeder.message(TOPIC_BLOCKS, update))
    assert_same(view.device, feeder.device)
    assert view.feed.wants_snapshot()


def test_another_life_of_the_engine_is_ignored() -> None:
    feeder, other = Feeder(64, 32, 0), Feeder(64, 32, 0, epoch="e2")
    view = watch(feeder)
    other.submit(100, 10)
    for message in other.advance(3):
        view.apply(*message)
    assert_same(view.device, feeder.device)
    assert len(view.steps) == 0


def test_changes_are_told_to_each_reader_from_where_it_was() -> None:
    feeder = Feeder(300, 16, 0)
    view = watch(feeder)
    tier = view.device
    start = tier.version
    for _ in range(3):
        for message in feeder.advance(2, arrivals=1.0):
            view.apply(*message)
    changed = tier.changed_since(start)
    assert changed is not None
    assert set(changed.tolist()) == set(np.flatnonzero(tier.last_used).tolist())
    nothing = tier.changed_since(tier.version)
    assert nothing is not None
    assert not nothing.size
    for _ in range(state.CHANGES_KEPT + 1):
        feeder.submit(16, 4)
        for message in feeder.advance(1):
            view.apply(*message)
    assert tier.changed_since(start) is None


def test_filled_counts_the_empty_slots_of_blocks_that_sequences_hold_or_keep() -> None:
    feeder = Feeder(10, 16, 0)
    view = watch(feeder)
    feeder.device.put(0, BlockState.ACTIVE, 1, 16, 1, 1)
    feeder.device.put(1, BlockState.ACTIVE, 1, 8, 1, 1)
    feeder.device.put(2, BlockState.CACHED, 0, 16, 0, 1)
    feeder.device.put(3, BlockState.RESERVED, 0, 0, 1, 1)
    view.apply(*feeder.message(TOPIC_BLOCKS, BlocksUpdate("e1", 1, False, feeder.device.delta(), feeder.host.delta())))
    assert view.device.held == 24
    assert (view.device.used, view.device.allocated) == (2, 3)
    assert view.device.filled == pytest.approx(0.5)


def test_history_keeps_the_newest_rows_in_order() -> None:
    history = History(("a", "b"), 5)
    for n in range(23):
        history.append({"a": float(n), "b": -float(n)})
        assert history.column("a").tolist() == [float(k) for k in range(max(0, n - 4), n + 1)]
    assert history.column("b").tolist() == [-18.0, -19.0, -20.0, -21.0, -22.0]
    assert history.total == 23


def test_steps_come_back_whole_and_know_their_classes() -> None:
    feeder = Feeder(600, 16, 100, seed=8)
    view = watch(feeder)
    records = []
    for _ in range(30):
        for message in feeder.advance(2, arrivals=0.5, stats=True):
            view.apply(*message)
            records += getattr(message[2], "steps", []) if message[0] == b"step" else []
    assert [view.steps.record(i) for i in range(len(view.steps))] == records
    by_class = sum(view.steps.column(f"decode_{name}") for name in state.CLASSES)
    np.testing.assert_array_equal(by_class, view.steps.column("decode_tokens"))
    last = records[-1]
    number = last.entries[0].request
    assert len(records) - 1 in view.steps.including(number, 0, len(records))
    name = view.class_of(number)
    kind = "prefill" if last.entries[0].prefill else "decode"
    assert view.steps.column(f"{kind}_{name}")[-1] >= last.entries[0].tokens


def test_old_steps_are_dropped_with_their_entries() -> None:
    feeder = Feeder(600, 16, 0)
    history = state.StepHistory(capacity=7)
    records = []
    for _ in range(20):
        steps = next(m for m in feeder.advance(1, arrivals=1.0) if m[0] == b"step")[2].steps
        records += steps
        history.add(steps[0], {})
    assert [history.record(i) for i in range(len(history))] == records[-7:]


def test_nothing_measured_is_not_zero() -> None:
    feeder = Feeder()
    view = watch(feeder)
    stats = feeder.stats()
    stats.latency = {}
    view.apply(*feeder.message(b"stats", stats))
    assert np.isnan(view.latency.column("ttft_p95")[-1])
    assert view.latency.column("ttft_count")[-1] == 0


def test_ended_requests_are_forgotten_and_live_ones_are_not() -> None:
    view = EngineView()
    view.begin("e1")

    def tell(number: int, what: str) -> None:
        row = RequestRow(number, f"r{number}", what, 10)
        view.apply(TOPIC_EVENT, view_sequence(), Event("e1", 0.0, what, "", row=row))

    counter = iter(range(1, 10**6))

    def view_sequence() -> int:
        return next(counter)

    tell(1, "running")
    for number in range(2, state.ENDED_KEPT + 300):
        tell(number, "finished")
        tell(number, "finished")
    assert len(view.requests) == state.ENDED_KEPT + 1
    assert [row.number for row in view.live()] == [1]
    assert state.ENDED_KEPT + 299 in view.requests
    assert 2 not in view.requests
    assert len(view.events) <= state.EVENTS_KEPT


def test_the_connection_remembers_since_when() -> None:
    view = EngineView()
    assert view.set_connection(ConnectionState.LOADING, "weights", 0.1)
    since = view.since
    assert view.set_connection(ConnectionState.LOADING, "weights", 0.5)
    assert not view.set_connection(ConnectionState.LOADING, "weights", 0.5)
    assert view.since == since
