"""Defaults that every test runs under, a tiny model, and engines that run it in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from .ahead import Ahead
from .nursery import Born, Nursery

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        type=float,
        default=0.0,
        metavar="MINUTES",
        help="random tests: go on with examples never tried before, so many minutes each, rather than with the same "
        "few every time",
    )


def pytest_configure(config: pytest.Config) -> None:
    # How long an example takes, and how long it takes to find one, is the machine's affair.
    patient: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("ours", derandomize=not config.getoption("long"), **patient)
    settings.load_profile("ours")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("long"):
        for item in items:
            if item.get_closest_marker("random"):
                item.add_marker(pytest.mark.timeout(0))


AHEAD: pytest.StashKey[Ahead] = pytest.StashKey()


def pytest_collection_finish(session: pytest.Session) -> None:
    """The programs of tests marked ``ahead(command…)`` begin, unless this process runs only some of the tests."""
    if not session.config.getoption("collectonly") and not hasattr(session.config, "workerinput"):
        for item in session.items:
            if item.get_closest_marker("ahead"):
                _begin(item)


def _begin(item: pytest.Item) -> Ahead:
    if AHEAD not in item.stash:
        mark = item.get_closest_marker("ahead")
        assert mark
        item.stash[AHEAD] = Ahead(mark.args)
        item.config.add_cleanup(item.stash[AHEAD].end)
    return item.stash[AHEAD]


@pytest.fixture
def ahead(request: pytest.FixtureRequest) -> subprocess.CompletedProcess[str]:
    """What came of the test's program."""
    return _begin(request.node).result()


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """With ``--long``, a random test runs again and again, each time with examples of its own."""
    minutes = pyfuncitem.config.getoption("long")
    if not minutes or not pyfuncitem.get_closest_marker("random"):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        pyfuncitem.obj(**arguments)
    return True


CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama checkpoint of 2 layers with random weights and a byte-level tokenizer of 320 tokens, 0 being the end."""
    folder = tmp_path_factory.mktemp("model") / "tiny-llama"
    folder.mkdir()
    write_tokenizer(folder)
    write_llama(folder, vocabulary=320, hidden=64, layers=2, heads=4, kv_heads=2, inner=128)
    return folder


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        ["the quick brown fox jumps over the lazy dog and then sleeps in the sun"] * 4, trainer
    )
    words = [f"extra{i}" for i in range(320 - tokenizer.get_vocab_size())]
    tokenizer.add_tokens(words)
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|end|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))


def write_llama(
    folder: Path, *, vocabulary: int, hidden: int, layers: int, heads: int, kv_heads: int, inner: int
) -> None:
    from safetensors.numpy import save_file

    random = np.random.default_rng(0)
    size = hidden // heads

    def weight(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * 0.2).astype(np.float32)

    tensors = {
        "model.embed_tokens.weight": weight(vocabulary, hidden),
        "model.norm.weight": np.ones(hidden, np.float32),
    }
    for layer in range(layers):
        at = f"model.layers.{layer}."
        tensors |= {
            at + "self_attn.q_proj.weight": weight(heads * size, hidden),
            at + "self_attn.k_proj.weight": weight(kv_heads * size, hidden),
            at + "self_attn.v_proj.weight": weight(kv_heads * size, hidden),
            at + "self_attn.o_proj.weight": weight(hidden, heads * size),
            at + "mlp.gate_proj.weight": weight(inner, hidden),
            at + "mlp.up_proj.weight": weight(inner, hidden),
            at + "mlp.down_proj.weight": weight(hidden, inner),
            at + "input_layernorm.weight": np.ones(hidden, np.float32),
            at + "post_attention_layernorm.weight": np.ones(hidden, np.float32),
        }
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": size,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "eos_token_id": 0,
        "bos_token_id": None,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}))


class EngineProcess:
    """A running engine. ``connection`` finds it; ``log`` is what it said on stderr so far."""

    def __init__(self, process: subprocess.Popen[bytes] | Born) -> None:
        self.process = process
        self.log: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self.log.append(line.decode(errors="replace").rstrip())
                self._said.notify_all()
        with self._said:
            self.process.wait()
            self._said.notify_all()

    def wait_for(self, text: str, timeout: float = 180.0) -> None:
        """Wait until a line of the log holds ``text``."""
        with self._said:
            said = self._said.wait_for(
                lambda: any(text in line for line in self.log) or self.process.returncode is not None, timeout
            )
            if not said or not any(text in line for line in self.log):
                pytest.fail(f"the engine did not say {text!r}:\n" + "\n".join(self.log))

    def wait_exit(self, timeout: float = 180.0) -> int:
        """Wait until it ends and its log is complete; returns its exit code."""
        self.process.wait(timeout)
        self._reader.join(timeout)
        return self.process.returncode

    @property
    def connection(self) -> Any:
        from pagedeck.ipc.endpoint import read_connection

        return read_connection(
            next(line.partition("connection file ")[2] for line in self.log if "connection file " in line)
        )


#: Starts an engine: ``engine_process(name=…, listen=…, ready=True, fresh=False, owned=True, **settings of
#: EngineConfig)``. One that is waited for until it is ready comes from the nursery, unless it is to be ``fresh``.
StartEngine = Callable[..., AbstractContextManager[EngineProcess]]

_SERVE = """
import json, sys
from pagedeck.engine.config import EngineConfig
from pagedeck.engine.serving.service import serve
what = json.loads(sys.argv[1])
sys.exit(serve(EngineConfig(**what.pop("config")), **what))
"""


@contextmanager
def _start_engine(
    nursery: Nursery,
    folder: Path,
    runtime: Path,
    *,
    name: str = "test",
    listen: str | None = None,
    ready: bool = True,
    fresh: bool = False,
    owned: bool = True,
    kv_events: str | None = None,
    kv_events_replay: str | None = None,
    **config: Any,
) -> Iterator[EngineProcess]:
    config = {"model": str(folder), "device": "cpu", "num_blocks": 256, "block_size": 16, "threads": 1} | config
    what = {"config": config, "name": name, "listen": listen, "owned": owned}
    what |= {"kv_events": kv_events, "kv_events_replay": kv_events_replay}
    environment = os.environ | {"PAGEDECK_RUNTIME": str(runtime), "PAGEDECK_STATE": str(runtime / "log")}
    # Where it matters how an engine begins, it begins as it does for its users.
    start = nursery.start if ready and not fresh else subprocess.Popen
    process = start(
        [sys.executable, "-c", _SERVE, json.dumps(what)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    engine = EngineProcess(process)
    try:
        engine.wait_for("Ready" if ready else "Listening")
        yield engine
    finally:
        process.kill()
        engine.wait_exit()
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="session")
def nursery() -> Nursery:
    return Nursery()


@pytest.fixture(scope="session", autouse=True)
def _engines_from_the_nursery(nursery: Nursery) -> Iterator[None]:
    """Those that programs start, too; ``fresh_engines`` has them start as they do elsewhere."""
    from pagedeck.ipc import launch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "subprocess", nursery)
        yield


@pytest.fixture
def fresh_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    from pagedeck.ipc import launch

    monkeypatch.setattr(launch, "subprocess", subprocess)


@pytest.fixture
def engine_process(
    nursery: Nursery, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StartEngine:
    """Starts engines for one test, in a runtime folder of its own."""
    runtime = tmp_path / "run"
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(runtime))
    monkeypatch.setenv("PAGEDECK_STATE", str(runtime / "log"))
    return lambda **options: _start_engine(nursery, tiny_model_folder, runtime, **options)


@pytest.fixture(scope="session")
def start_engine(nursery: Nursery) -> StartEngine:
    """As ``engine_process``, for fixtures that have a model and a runtime folder of their own: both come first."""
    return partial(_start_engine, nursery)


@pytest.fixture(scope="session")
def shared_engine(
    nursery: Nursery, tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    """One running engine for all tests that leave it as they find it."""
    with _start_engine(nursery, tiny_model_folder, tmp_path_factory.mktemp("shared"), name="shared") as engine:
        yield engine
