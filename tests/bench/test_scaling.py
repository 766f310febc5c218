"""Speed against batch and context, and the parts of a step, of a tiny model: real engines, few steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pagedeck.bench import scaling
from pagedeck.bench.inside import step_profile
from pagedeck.commands import bench
from pagedeck.engine.config import EngineConfig
from pagedeck.ipc.vocabulary import Refused


@pytest.fixture
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))


def point(batch: int, context: int, step_ms: float) -> scaling.StepTime:
    return scaling.StepTime(batch, context, step_ms, 0.9 * step_ms, 0.1, 0.2, 0.3, 0.4, steps=5)


@pytest.mark.usefixtures("private_folders")
def test_steps_of_every_batch_and_context_are_measured(tiny_model_folder: Path) -> None:
    found = scaling.measure(tiny_model_folder, threads=1, report=lambda *_: None, batches=(1, 3))
    assert [p.batch for p in found.batches] == [1, 3]
    assert [p.context for p in found.contexts] == [128, 256, 512, 1024, 2048, 4096]  # as far as the model goes
    for p in (*found.batches, *found.contexts):
        assert p.steps >= scaling.OUTPUTS // 2
        assert 0 < p.forward_ms < p.step_ms
        assert p.forward_ms + p.sample_ms + p.schedule_ms + p.other_ms + p.between_ms >= 0.5 * p.step_ms
    facts = json.loads(json.dumps(found.facts()))
    assert [p["context"] for p in facts["contexts"]] == [p.context for p in found.contexts]
    assert "4,096" in bench.render_scaling(found)


def test_what_grows_with_the_context_is_attention() -> None:
    contexts = [point(1, 100, 11.0), point(1, 200, 12.0), point(1, 1000, 20.0)]
    found = scaling.Scaling([point(4, 76, 8.0)], contexts, threads=2)
    assert found.attention(1000) == pytest.approx(0.5)
    assert found.attention(100) == pytest.approx(1 / 11)
    assert found.linearity == pytest.approx(1)
    assert found.batches[0].tokens_per_s == pytest.approx(500)
    assert found.batches[0].outside == pytest.approx(0.1)
    rows = [" ".join(line.split()) for line in bench.render_scaling(found).splitlines()]
    assert "4 500.0 8.00 7.20 0.10 0.20 0.30 0.40 10.0%" in rows
    assert "1,000 50.0% 20.00 18.00 0.10 0.20 0.30 0.40 10.0%" in rows
    bent = scaling.Scaling([], [point(1, 100, 1.0), point(1, 200, 4.0), point(1, 400, 2.0)], threads=2)
    assert bent.linearity < 0.5


def test_the_parts_of_a_step_make_a_whole(tiny_model_folder: Path) -> None:
    config = EngineConfig(model=str(tiny_model_folder), num_blocks=60, threads=1)
    steps = step_profile.profile(config, lambda *_: None, batches=(1, 4))
    assert [step.batch for step in steps] == [1, 4]
    for step in steps:
        parts = {name: getattr(step, name) for name in step_profile.part_names()}
        assert all(parts[name] > 0 for name in ("linear", "attention", "rotary_and_write", "norms_and_activations"))
        assert all(part >= 0 for part in parts.values()), parts
        inside = ("linear", "attention", "rotary_and_write", "norms_and_activations", "other_forward")
        assert sum(parts[name] for name in inside) == pytest.approx(step.forward)
        assert 0.5 * step.step < sum(parts.values()) < 1.5 * step.step  # medians of parts, not parts of a median
        assert 0 < step.outside < 1
    text = bench.render_profile(steps)
    assert "rotary and write" in text and "batch 4" in text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["threads"], "setting is 'threads'; accepted is name=value"),
        (["color=blue"], "setting is 'color'; accepted is one of model, "),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(Refused, match=message):
        bench.engine_settings(settings)
    assert bench.engine_settings(["block-size=16", "preemption=swap"]) == {"block_size": 16, "preemption": "swap"}
