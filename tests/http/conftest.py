"""A real engine on a tiny model with a gateway before it, each in a process of its own; and engines that only talk."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

#: Tells the model of tools, of calls made and of their results.
TOOL_TEMPLATE = (
    "{% for t in tools or [] %}<tool>{{ t.function.name }}: {{ t.function.parameters | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments.on }}{% endfor %}"
    "{% if m.role == 'tool' %}<for {{ m.tool_call_id }}>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def openai_client(url: str, key: str = "none") -> openai.OpenAI:
    http = openai.DefaultHttpxClient(trust_env=False)
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60, http_client=http)


class Gateway:
    """``pagedeck gateway`` in a process of its own; ``url`` is where it is, and ``http`` asks there."""

    def __init__(self, runtime: Path, *arguments: str, key: str = "", owned: bool = True) -> None:
        environment = os.environ | {"PAGEDECK_RUNTIME": str(runtime), "PAGEDECK_STATE": str(runtime / "log")}
        environment |= {"PAGEDECK_API_KEY": key} if key else {}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pagedeck", "gateway", "--port", "0", *arguments, *["--exit-with-parent"] * owned],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = re.search(r"http://[^/]+", said)
        assert found, "the gateway did not start"
        self.url = found[0]
        # No proxy that the environment names is asked for what is on this machine.
        self.http = httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai_client(f"{self.url}/v1", key)

    def stop(self) -> None:
        self.http.close()
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


StartGateway = Callable[..., AbstractContextManager[Gateway]]


@contextmanager
def _start_gateway(runtime: Path, *arguments: str, **options: Any) -> Iterator[Gateway]:
    gateway = Gateway(runtime, *arguments, **options)
    try:
        yield gateway
    finally:
        gateway.stop()


@pytest.fixture(scope="session")
def tool_model(tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, with a chat template that knows tools."""
    folder = tmp_path_factory.mktemp("tools") / "tiny-tools"
    shutil.copytree(tiny_model_folder, folder)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": TOOL_TEMPLATE}))
    return folder


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("http")


@pytest.fixture(scope="session")
def engine(tool_model: Path, runtime: Path, start_engine: Any) -> Iterator[Any]:
    """One engine for all tests that leave it as they find it."""
    with start_engine(tool_model, runtime, name="http") as engine:
        yield engine


@pytest.fixture(scope="session")
def gateway(engine: Any, runtime: Path) -> Iterator[Gateway]:
    with _start_gateway(runtime, "--name", "http") as gateway:
        _wait_ready(gateway)
        yield gateway


def _wait_ready(gateway: Gateway) -> None:
    while gateway.http.get("/health").status_code != 200:
        pass


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with gateway.client() as client:
        yield client


@pytest.fixture
def model(client: openai.OpenAI) -> str:
    return client.models.list().data[0].id


@pytest.fixture
def start_gateway() -> StartGateway:
    return _start_gateway


class Talker:
    """An engine that only talks, in a process of its own: it does as it is told (see ``talker.py``)."""

    def __init__(self, runtime: Path, name: str) -> None:
        environment = os.environ | {"PAGEDECK_RUNTIME": str(runtime), "PAGEDECK_STATE": str(runtime / "log")}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "talker.py"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.hears() == "here"

    def tell(self, *words: str) -> None:
        """Have it change its state, and wait until it has."""
        assert self.process.stdin is not None
        print(*words, sep="\t", file=self.process.stdin, flush=True)
        assert self.hears() == "done"

    def hears(self) -> str:
        """The next thing that happens to it."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def talker(tmp_path: Path) -> Iterator[Callable[..., Talker]]:
    """Starts talkers of one name in ``tmp_path``, which end with the test."""
    talkers: list[Talker] = []

    def start(name: str = "talker") -> Talker:
        talkers.append(Talker(tmp_path, name))
        return talkers[-1]

    yield start
    for one in talkers:
        if one.process.poll() is None:
            one.kill()
