"""The real model through real sockets: the same tokens as transformers.generate, whatever happens to the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pagedeck.bench import baselines
from pagedeck.engine.config import EngineConfig
from pagedeck.engine.model.checkpoint import locate
from pagedeck.ipc.client import Client, EngineError
from pagedeck.ipc.endpoint import Connection
from pagedeck.ipc.launch import Engine
from pagedeck.ipc.protocol import Failed, Finished, Submit, Tokens
from pagedeck.ipc.vocabulary import BlockState, SamplingParams

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

FABLE = (
    "A crow, half dead with thirst, came upon a pitcher which had once been full of water; but when the crow put its "
    "beak into the mouth of the pitcher it found that only very little water was left in it, and that it could not "
    "reach far enough down to get at it. It tried, and it tried, but at last had to give up in despair. "
)
CHATS = (
    "What is the capital of France?",
    "Write three sentences about the sea.",
    FABLE * 3 + "What should the crow do?",
    FABLE * 3 + "Who is thirsty, and why?",
    "List the first ten prime numbers.",
)
TEXTS = ("Once upon a time", "def fibonacci(n):\n", FABLE * 6)
OUTPUT_TOKENS = (64, 80, 48, 72, 56, 64, 88, 40)

#: float32 sums in another order differ by less than this in a logit; top candidates closer than it are a tie.
ROUNDING = 2e-3


@dataclass(frozen=True)
class Reference:
    """transformers' model, the prompts, and its greedy output for each."""

    folder: Path
    model: Any
    prompts: list[list[int]]
    outputs: list[list[int]]

    def check(self, index: int, output: list[int], undisturbed: list[int]) -> None:
        """``output`` is transformers' own, or leaves it where two tokens tie and an undisturbed run leaves it too."""
        expected = self.outputs[index]
        if output == expected:
            return
        assert output == undisturbed, f"request {index}: the output depends on what else happened"
        at = next(i for i, (a, b) in enumerate(zip(output, expected, strict=True)) if a != b)
        import torch

        with torch.inference_mode():
            logits = self.model(torch.tensor([self.prompts[index] + expected[:at]])).logits[0, -1]
        values, tokens = logits.topk(2)
        assert set(tokens.tolist()) == {output[at], expected[at]}, f"request {index}: wrong from token {at} on"
        assert values[0] - values[1] < ROUNDING, f"request {index}: wrong from token {at} on, and it was no tie"


@pytest.fixture(scope="module")
def reference() -> Reference:
    from transformers import AutoTokenizer

    folder = locate(EngineConfig(), lambda *_: None).folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)["input_ids"]
        for text in CHATS
    ] + [tokenizer(text)["input_ids"] for text in TEXTS]
    model = baselines.load(folder)
    outputs = [baselines.generate(model, [pair])[0] for pair in zip(prompts, OUTPUT_TOKENS, strict=True)]
    return Reference(folder, model, prompts, outputs)


@contextmanager
def engine(tmp_path: Path, *arguments: str) -> Iterator[Connection]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
        patch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
        with Engine("e2e", ["--dtype", "float32", "--device", "cpu", *arguments]) as child:
            yield child.wait_ready()


@pytest.fixture(scope="module")
def undisturbed(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """Our outputs, each request alone in the engine and its cache."""
    with (
        engine(tmp_path_factory.mktemp("alone"), "--num-blocks", "64", "--prefix-caching", "off") as connection,
        Client(connection, timeout=120) as client,
    ):
        return [
            client.submit(token_ids=prompt, max_tokens=count, temperature=0.0, ignore_eos=True).token_ids()
            for prompt, count in zip(reference.prompts, OUTPUT_TOKENS, strict=True)
        ]


class Load:
    """All requests at once, each through a socket of its own; ``wait_for`` counts the tokens that came."""

    def __init__(self, connection: Connection, prompts: list[list[int]]) -> None:
        self.outputs: list[list[int]] = [[] for _ in prompts]
        self.finished: list[Finished] = []
        self.errors: list[object] = []
        self._changed = threading.Condition()
        self._stack = ExitStack()
        for index, (prompt, count) in enumerate(zip(prompts, OUTPUT_TOKENS, strict=True)):
            client = self._stack.enter_context(Client(connection))
            sampling = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True)
            client.post(Submit(id=f"request-{index}", token_ids=prompt, sampling=sampling), self._receiver(index))

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _receiver(self, index: int) -> Callable[[object], None]:
        def receive(answer: object) -> None:
            with self._changed:
                if isinstance(answer, Tokens):
                    self.outputs[index] += answer.token_ids
                elif isinstance(answer, Finished):
                    self.finished.append(answer)
                elif isinstance(answer, EngineError | Failed):
                    self.errors.append(answer)
                self._changed.notify_all()

        return receive

    @property
    def total(self) -> int:
        return sum(map(len, self.outputs))

    def wait_for(self, tokens: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.total >= tokens or self.errors, 300)
            assert not self.errors

    def wait_end(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.finished) == len(self.outputs) or self.errors, 600)
            assert not self.errors


def test_the_cache_changes_under_eight_requests_and_no_token_does(
    reference: Reference, undisturbed: list[list[int]], tmp_path: Path
) -> None:
    changes: list[dict[str, Any]] = [
        {"block_size": 16},
        {"block_size": 64},
        {"swap_space_gib": 1.0},
        {"block_size": 32},
        {"swap_space_gib": 0.0},
    ]
    now: dict[str, Any] = {"block_size": 32, "swap_space_gib": 0.0}
    with engine(tmp_path, "--num-blocks", "256") as connection, Client(connection, timeout=120) as client:
        slots = 256 * 32
        with Load(connection, reference.prompts) as load:
            for index, change in enumerate(changes):
                load.wait_for(8 + 40 * index)
                preview = client.reconfigure(change, dry_run=True)
                report = client.reconfigure(change)
                [(name, value)] = change.items()
                assert preview.dry_run and not report.dry_run
                assert preview.changes == report.changes == {name: (now[name], value)}
                assert report.pause_ms > 0
                assert report.preempted == 0
                now[name] = value
                assert {s.name: s.value for s in client.config()} | now == {s.name: s.value for s in client.config()}
                snapshot = client.snapshot()
                assert snapshot.blocks
                device, host = snapshot.blocks.device, snapshot.blocks.host
                assert device.block_size == now["block_size"]
                assert device.num_blocks == slots // now["block_size"]
                assert (host.num_blocks > 0) == (now["swap_space_gib"] > 0)
                assert host.num_blocks * host.block_bytes <= now["swap_space_gib"] * 2**30
            assert load.total < sum(OUTPUT_TOKENS), "the changes came too late to be under load"
            load.wait_end()
            for index, output in enumerate(load.outputs):
                reference.check(index, output, undisturbed[index])
            assert [f.output_tokens for f in sorted(load.finished, key=lambda f: f.id)] == list(OUTPUT_TOKENS)
        snapshot = client.snapshot()
        assert snapshot.blocks
        assert {row.state for row in snapshot.requests} == {"finished"}
        assert set(snapshot.blocks.device.state) <= {BlockState.FREE, BlockState.CACHED}


def test_splitting_blocks_copies_nothing(reference: Reference, tmp_path: Path) -> None:
    with (
        engine(tmp_path, "--num-blocks", "64", "--block-size", "64") as connection,
        Client(connection, timeout=120) as client,
    ):
        stream = client.submit(token_ids=reference.prompts[0], max_tokens=64, temperature=0.0, ignore_eos=True)
        next(iter(stream))
        report = client.reconfigure({"block_size": 8})
        assert (report.blocks_moved, report.bytes_copied) == (0, 0)
        reference.check(0, stream.token_ids(), stream.token_ids())


@pytest.mark.parametrize(("preemption", "swap"), [("swap", "1"), ("recompute", "0")])
def test_too_little_memory_for_all_changes_no_token(
    reference: Reference, undisturbed: list[list[int]], tmp_path: Path, preemption: str, swap: str
) -> None:
    arguments = ["--num-blocks", "40", "--preemption", preemption, "--swap-space-gib", swap, "--prefix-caching", "off"]
    assert sum(map(len, reference.prompts)) + sum(OUTPUT_TOKENS) > 40 * 32
    with engine(tmp_path, *arguments) as connection, Load(connection, reference.prompts) as load:
        load.wait_end()
        for index, output in enumerate(load.outputs):
            reference.check(index, output, undisturbed[index])


def test_chat_in_the_terminal_starts_an_engine_and_answers(reference: Reference, tmp_path: Path) -> None:
    environment = os.environ | {"PAGEDECK_RUNTIME": str(tmp_path / "run"), "PAGEDECK_STATE": str(tmp_path / "state")}
    command = [sys.executable, "-m", "pagedeck", "chat", CHATS[0], "--temperature", "0"]
    answer = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert "Paris" in answer.stdout
    assert "Traceback" not in answer.stderr
