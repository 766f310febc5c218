"""Loading from every kind of source, and what is refused before or while loading."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagedeck.cli import main
from pagedeck.engine.cache.storage import KVLayout
from pagedeck.engine.config import EngineConfig
from pagedeck.engine.model import checkpoint, fetch, library
from pagedeck.engine.model.loading import LoadedModel, load_model
from pagedeck.ipc.vocabulary import Refused
from safetensors.torch import load_file, save_file
from transformers.utils import logging

from .tiny_models import tiny_config


class Reports(list[tuple[str, float | None]]):
    def __call__(self, message: str, fraction: float | None) -> None:
        self.append((message, fraction))

    @property
    def said(self) -> str:
        return "\n".join(message for message, _ in self)


def load(model: Path | str, **settings: Any) -> LoadedModel:
    return load_model(EngineConfig(**{"model": str(model), "device": "cpu"} | settings), Reports())


def refusal(model: Path | str, **settings: Any) -> str:
    with pytest.raises(Refused) as refused:
        load(model, **settings)
    assert "\n" not in str(refused.value)
    assert refused.value.field in ("model", "context_length", "device")
    return str(refused.value)


@pytest.fixture
def folder(tiny_model_folder: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(tiny_model_folder, tmp_path / "copy"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAGEDECK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_folder(tiny_model_folder: Path) -> None:
    loaded = load(tiny_model_folder)
    assert loaded.name == "tiny-llama"
    assert loaded.layout == KVLayout(2, 2, 16, torch.float32)
    assert (loaded.context_length, loaded.vocabulary, loaded.eos_ids) == (4096, 320, {0})
    assert loaded.chat_template
    weights = load_file(tiny_model_folder / "model.safetensors")
    assert loaded.parameters == sum(w.numel() for w in weights.values())
    assert torch.equal(loaded.model.get_input_embeddings().weight, weights["model.embed_tokens.weight"])
    assert not any(p.requires_grad for p in loaded.model.parameters())


def test_precision_and_context_as_asked(tiny_model_folder: Path) -> None:
    loaded = load(tiny_model_folder, dtype="bfloat16", context_length=100)
    assert loaded.dtype == loaded.layout.dtype == loaded.model.dtype == torch.bfloat16
    assert loaded.context_length == 100


def test_every_end_token_counts(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 4]}))
    assert load(folder).eos_ids == {0, 3, 4}


def test_without_a_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()
    loaded = load(folder)
    assert loaded.tokenizer is None
    assert not loaded.chat_template


def test_dummy_weights_from_a_configuration_alone(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    first, second = (load(folder, load_format="dummy", seed=5) for _ in range(2))
    other = load(folder / "config.json", load_format="dummy", seed=6)
    assert first.layout == other.layout
    assert other.name == "copy"
    assert other.tokenizer is None
    for ours, same, different in zip(*(m.model.parameters() for m in (first, second, other)), strict=True):
        assert torch.equal(ours, same)
        assert ours.ndim == 1 or not torch.equal(ours, different)


def test_folders_that_are_refused(folder: Path, tmp_path: Path) -> None:
    assert "no config.json" in refusal(tmp_path)
    change_config(folder, quantization_config={"quant_method": "gptq"})
    assert "quantised by gptq" in refusal(folder)
    change_config(folder, quantization_config=None)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pickle (pytorch_model.bin)" in refusal(folder)
    (folder / "pytorch_model.bin").unlink()
    assert "no safetensors" in refusal(folder)
    (folder / "config.json").write_text("{")
    assert "not valid JSON" in refusal(folder)
    (folder / "config.json").write_text("[1]")
    assert "not an object" in refusal(folder)


def test_code_in_a_folder_is_never_run(folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    (folder / "modeling_evil.py").write_text(f"open({str(trace)!r}, 'w')\nclass EvilConfig: pass\nclass Evil: pass\n")
    auto_map = {"AutoConfig": "modeling_evil.EvilConfig", "AutoModelForCausalLM": "modeling_evil.Evil"}
    change_config(folder, auto_map=auto_map, model_type="evil")
    assert "never run" in refusal(folder)
    change_config(folder, model_type="llama")
    load(folder)  # the same architecture without its code
    assert not trace.exists()


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/x.safetensors", "pytorch_model.bin", "sub/model.safetensors", "", 7, None]
)
def test_an_index_that_leads_elsewhere_is_refused(folder: Path, name: object) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
    assert f"names {name!r}" in refusal(folder)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"weight_map": []}', "[" * 3000])
def test_an_index_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / "model.safetensors.index.json").write_text(text)
    assert "not an index" in refusal(folder)


def test_damaged_and_incomplete_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    kept = {name: w for name, w in weights.items() if "layers.1.mlp.down" not in name}
    save_file(kept, path, metadata={"format": "pt"})
    assert "1 are missing, first model.layers.1.mlp.down_proj.weight" in refusal(folder)
    path.write_bytes(path.read_bytes()[:5000])
    assert "damaged or incomplete" in refusal(folder)


def test_unknown_models_and_settings(tiny_model_folder: Path, folder: Path) -> None:
    assert "accepted is" in refusal("no-such-model")
    assert "accepted is" in refusal("a/b/c")
    assert "at most 4,096 tokens" in refusal(tiny_model_folder, context_length=5000)
    change_config(folder, model_type="nothing-known")
    assert "cannot be served" in refusal(folder)
    if not torch.cuda.is_available():
        assert "no GPU" in refusal(tiny_model_folder, device="cuda")


def test_context_stops_where_positions_would_depend_on_the_batch(folder: Path) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 8,
        "long_factor": [2.0] * 8,
        "original_max_position_embeddings": 512,
    }
    change_config(folder, rope_parameters=rope)
    assert load(folder).context_length == 512
    assert "at most 512" in refusal(folder, context_length=1000)


@pytest.fixture
def hub(tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with one model, and no network."""
    from huggingface_hub import constants

    revision = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--owner--tiny"
    shutil.copytree(tiny_model_folder, repository / "snapshots" / revision)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def test_hub_model_without_network(hub: Path) -> None:
    loaded = load("owner/tiny")
    assert (loaded.name, loaded.layout.layers) == ("owner/tiny", 2)
    assert "not in the hub cache and the hub cannot be reached" in refusal("owner/other")


def write_gguf(path: Path, weights: dict[str, np.ndarray]) -> None:
    """The tiny Llama as a GGUF file with its tokenizer."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(320)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "ab", *(f"t{i}" for i in range(3, 320))])
    writer.add_token_types([gguf.TokenType.NORMAL] * 320)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(7)
    writer.add_bos_token_id(8)
    writer.add_chat_template("{{ messages[0].content }}")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, weight in weights.items():
        place = names.get_name(name, try_suffixes=(".weight",))
        if "q_proj" in name or "k_proj" in name:  # GGUF keeps rotary pairs next to each other
            heads = weight.shape[0] // 16
            weight = weight.reshape(heads, 2, 8, -1).swapaxes(1, 2).reshape(weight.shape)
        if weight.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(place, gguf.quants.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(place, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def gguf_file(tiny_model_folder: Path, tmp_path: Path) -> Path:
    weights = {k: w.numpy() for k, w in load_file(tiny_model_folder / "model.safetensors").items()}
    write_gguf(tmp_path / "tiny.Q8_0.gguf", weights)
    return tmp_path / "tiny.Q8_0.gguf"


def test_gguf_is_converted_once(
    gguf_file: Path, cache: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(gguf_file)
    assert (first.name, first.layout.layers, first.context_length) == ("tiny.Q8_0", 2, 256)
    assert first.chat_template
    assert 7 in first.eos_ids
    exact = load(tiny_model_folder).model.state_dict()
    for name, weight in first.model.state_dict().items():
        assert torch.allclose(weight, exact[name], atol=0.01), name
    monkeypatch.setattr(checkpoint, "convert_gguf", lambda *_: pytest.fail("converted again"))
    renamed = gguf_file.rename(gguf_file.with_name("tiny.Q8_0.gguf"))
    assert load(renamed).parameters == first.parameters
    assert [path.name[:9] for path in (cache / "models").iterdir()] == ["tiny.Q8_0"]


def test_damaged_gguf_leaves_nothing_behind(gguf_file: Path, cache: Path) -> None:
    gguf_file.write_bytes(gguf_file.read_bytes()[:3000])
    assert "cannot be read" in refusal(gguf_file)
    assert not list(cache.rglob("*tiny*"))


def test_a_disk_too_small_for_the_converted_model_is_said_with_numbers(
    gguf_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil.disk_usage(cache.parent)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    said = refusal(gguf_file)
    assert re.search(r"cannot be stored in .* \([\d,]+ bytes are needed and 1,000 free\)", said)
    assert not list(cache.rglob("*tiny*"))


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no limit of file sizes")
def test_a_disk_that_fills_up_while_a_model_is_converted(gguf_file: Path, cache: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # a file that grows beyond is not written on
    try:
        said = refusal(gguf_file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot be stored" in said and "PAGEDECK_CACHE" in said
    assert not list(cache.rglob("*tiny*"))
    assert load(gguf_file).name == gguf_file.stem


def test_a_cache_that_is_no_folder_is_said(gguf_file: Path, cache: Path) -> None:
    cache.write_text("a file")
    assert "set PAGEDECK_CACHE" in refusal(gguf_file)


def test_converting_draws_nothing(gguf_file: Path, cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(gguf_file)
    assert "tensors" not in capfd.readouterr().err


def test_default_model_is_fetched_and_converted_once(
    gguf_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[Path] = []

    def fetch_default(report: fetch.Report) -> Path:
        fetched.append(gguf_file)
        return gguf_file

    monkeypatch.setattr(fetch, "fetch_default", fetch_default)
    for _ in range(2):
        assert load("SmolLM2-135M-Instruct").name == "SmolLM2-135M-Instruct"
    assert len(fetched) == 1


def test_a_default_model_that_was_fetched_is_complete(
    gguf_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    logging.enable_progress_bar()  # as in a process that has loaded no model
    monkeypatch.setattr(fetch, "fetch_default", lambda _report: gguf_file)
    assert main(["models", "fetch", "SmolLM2-135M-Instruct", "--json"]) == 0
    default = library.installed()[0]
    assert default.complete and default.parameters and default.context_length == 256
    said = capfd.readouterr()
    assert "SmolLM2-135M-Instruct is on this machine" in said.out and "it/s" not in said.err


def test_a_default_model_that_is_not_converted_yet_has_no_more_than_it_will_have(cache: Path) -> None:
    cache.mkdir(exist_ok=True)
    with fetch.default_path().open("wb") as file:
        file.truncate(fetch.DEFAULT.file_bytes)
    default = library.installed()[0]
    assert not default.complete and default.bytes == default.expected == fetch.DEFAULT.file_bytes


def test_progress_is_told(gguf_file: Path, cache: Path) -> None:
    reports = Reports()
    load_model(EngineConfig(model=str(gguf_file), device="cpu"), reports)
    assert "Converting tiny.Q8_0.gguf, once: weights" in reports.said
    assert reports.said.endswith("Loading tiny.Q8_0")


def test_windowed_models_load_too(tmp_path: Path) -> None:
    tiny_config("gemma3").save_pretrained(tmp_path)
    loaded = load(tmp_path, load_format="dummy")
    assert loaded.layout == KVLayout(3, 2, 8, torch.float32)
