"""Each system under measurement, on a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pagedeck.bench import variants
from pagedeck.bench.drive import Outcome
from pagedeck.bench.peers import Others
from pagedeck.bench.results import Run, read
from pagedeck.bench.workload import Item, make_load
from pagedeck.cli import main
from pagedeck.ipc.vocabulary import Refused


@pytest.mark.parametrize("name", ["pagedeck", "contiguous", "fifo", "static"])
def test_all_do_the_same_work(
    name: str, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    items = make_load("mixed", 6, seed=0, vocabulary=300, context_length=120, arrivals="poisson:50")
    settings = [("block-size", "8"), ("num-blocks", "200")]
    run = variants.measure(
        name, tiny_model_folder, items, threads=1, settings=settings, report=lambda text, share: None
    )
    assert run.name == name and [len(one.tokens) for one in run.outcomes] == [item.output_tokens for item in items]
    assert [one.due for one in run.outcomes] == [item.at for item in items]
    assert all(one.sent >= one.due and one.ended >= one.arrivals[-1] > one.due for one in run.outcomes)
    if name != "static":
        assert run.engine["steps"] > 5 and 0 < run.engine["device_share"] <= 1 and run.engine["running_most"] >= 1


def test_limits_that_are_stated_make_a_goodput_everywhere(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    late = Run("pagedeck", [Outcome(0, 0, 2, [first, 2], [1, 1], 5) for first in (0.5, 0.9, 1.5, 1.9)])
    monkeypatch.setattr(variants, "measure", lambda *_, **__: late)
    output = tmp_path / "run.json"
    words = f"bench run --model {tiny_model_folder} --load burst --requests 4 --threads 1 --ttft-limit 1"
    assert main([*words.split(), "--output", str(output)]) == 0
    [told] = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("goodput")]
    assert told[2] == "1", "two of four within two seconds"
    assert read(output).limits == {"ttft_s": 1.0}
    page = output.with_suffix(".html").read_text(encoding="utf-8")
    assert "goodput (requests/s)" in page and "ttft_s 1.0" in page


def test_an_interrupted_measurement_says_what_it_keeps(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(name: str, *_: Any, **__: Any) -> Run:
        if name == "static":
            raise KeyboardInterrupt
        return Run(name, [Outcome(0, 0, 2, [1, 2], [1, 1], 5)])

    monkeypatch.setattr(variants, "measure", measure)
    output = tmp_path / "run.json"
    words = f"bench run --model {tiny_model_folder} --requests 4 --threads 1 --systems pagedeck,fifo,static"
    assert main([*words.split(), "--output", str(output)]) == 130
    assert f"Interrupted; {output} has what was measured: pagedeck, fifo." in capsys.readouterr().err
    assert read(output).names() == ["pagedeck", "fifo"]


def test_names_and_loads_that_cannot_be(tiny_model_folder: Path) -> None:
    variants.check_names(["pagedeck", "static", "continuous", "openvino"], Others(exported="folder"))
    with pytest.raises(Refused, match="systems is 'vllm'; accepted is pagedeck, contiguous"):
        variants.check_names(["vllm"], Others())
    with pytest.raises(Refused, match=r"systems is 'openvino'; .*openvino needs --openvino-model"):
        variants.check_names(["openvino"], Others())
    with pytest.raises(Refused, match="requests wait for others"):
        variants.static(
            tiny_model_folder, [Item([300], 1), Item([300], 1, after=0)], threads=1, report=lambda text, share: None
        )
