"""transformers as a peer, in a process of its own: ``python -m pagedeck.bench.baselines``.

Standard input holds one JSON object: ``model`` (a folder, or a GGUF file), ``way``, ``batch``, ``threads``, ``items``
(pairs of prompt ids and output length) and perhaps ``due`` (seconds from the start, of each item, in order). Standard
output is JSON lines: ``{"loaded": seconds}``, ``{"done": requests}`` first when it is warm and then as requests end,
and in the end ``{"finished": [...], "outputs": [...], "arrivals": [...]}``, times in seconds from the start.

Unless ``due`` says otherwise, all requests are there at the start. The way ``generate`` serves them in order: with
``batch`` 1 each is generated alone; otherwise prompts are padded on the left and masked, and a batch ends, for all of
its requests, with its longest output; whoever is due by then joins the next one. The way ``continuous`` is
transformers' own continuous batching, as it configures itself, but on a CPU for the size of its cache. The KV cache is
on, sampling is greedy, weights are float32, and end-of-text does not end a request.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Item = tuple[list[int], int]  # a prompt, and how many tokens must come out

PAD = 0
WARM_UP = (16, 4)  # prompt and output tokens: the first call of everything sets things up
BLOCK = 256  # tokens in a block of transformers' continuous batching, unless stated


def main() -> None:
    job = json.load(sys.stdin)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(job["threads"])
    begin = time.perf_counter()
    model = load(Path(job["model"]))
    _say(loaded=time.perf_counter() - begin)
    items = [(prompt, count) for prompt, count in job["items"]]
    if job["way"] == "continuous":
        _say(**continuous(model, items, lambda done: _say(done=done), job.get("due")))
    else:
        _say(**static(model, items, job["batch"], lambda done: _say(done=done), job.get("due")))


def load(path: Path) -> PreTrainedModel:
    """The model in float32 on the CPU, never stopping at an end-of-text token."""
    import torch
    from transformers import AutoModelForCausalLM

    folder, file = (path.parent, path.name) if path.suffix == ".gguf" else (path, None)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    return model.eval()


def static(
    model: PreTrainedModel,
    items: list[Item],
    size: int,
    done: Callable[[int], None],
    due: list[float] | None = None,
) -> dict[str, Any]:
    """Batches of up to ``size``, one after the other, of those that are due when one begins."""
    due = due or [0.0] * len(items)
    generate(model, [(prompt[: WARM_UP[0]], WARM_UP[1]) for prompt, _ in items[:size]])
    done(0)
    finished: list[float] = []
    outputs: list[list[int]] = []
    begin = time.perf_counter()
    while (first := len(finished)) < len(items):
        time.sleep(max(0.0, due[first] - (time.perf_counter() - begin)))
        now = time.perf_counter() - begin
        count = max(1, sum(at <= now for at in due[first : first + size]))
        batch = items[first : first + count]
        outputs += generate(model, batch)
        finished += [time.perf_counter() - begin] * len(batch)
        done(len(finished))
    return {"finished": finished, "outputs": outputs, "arrivals": None}


def generate(model: PreTrainedModel, batch: list[Item]) -> list[list[int]]:
    """The greedy outputs of prompts that run together, each of its own length."""
    import torch

    width = max(len(prompt) for prompt, _ in batch)
    longest = max(count for _, count in batch)
    padded = [[PAD] * (width - len(prompt)) + prompt for prompt, _ in batch]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt, _ in batch]
    with torch.inference_mode():
        tokens: Any = model.generate(
            torch.tensor(padded, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
            max_new_tokens=longest,
            do_sample=False,
            use_cache=True,
            pad_token_id=PAD,
        )
    assert tokens.shape[1] == width + longest, "generation ended early"
    return [row[width : width + count].tolist() for row, (_, count) in zip(tokens, batch, strict=True)]


def continuous(
    model: PreTrainedModel, items: list[Item], done: Callable[[int], None], due: list[float] | None = None
) -> dict[str, Any]:
    """All items through transformers' continuous batching, each when it is due. Times are those at which it took each
    token in."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    blocks = None
    if model.device.type == "cpu":  # its own choice is made for a GPU's memory
        blocks = len(items) + sum(-(-(len(prompt) + count) // BLOCK) for prompt, count in items)
    manager_of = model.continuous_batching_context_manager(
        generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=PAD, max_new_tokens=1),
        continuous_batching_config=ContinuousBatchingConfig(num_blocks=blocks),
    )
    with manager_of as manager:
        warm = [(prompt[: WARM_UP[0]], WARM_UP[1]) for prompt, _ in items[:8]]
        _serve(manager, warm, [0.0] * len(warm), lambda _: None)
        done(0)
        begin = time.perf_counter()
        results = _serve(manager, items, due or [0.0] * len(items), done)
    return {
        "finished": [result.timestamps[-1] - begin for result in results],
        "outputs": [list(result.generated_tokens) for result in results],
        "arrivals": [[stamp - begin for stamp in result.timestamps] for result in results],
    }


def _serve(manager: Any, items: list[Item], due: list[float], done: Callable[[int], None]) -> list[Any]:
    """The manager's result for each item, in their order. It works in a thread of its own, so that this one is free to
    send what is due."""
    begin = time.perf_counter()
    ids: list[str] = []
    results: dict[str, Any] = {}
    while len(results) < len(items):
        now = time.perf_counter() - begin
        while len(ids) < len(items) and due[len(ids)] <= now:
            prompt, count = items[len(ids)]
            ids.append(manager.add_request(prompt, max_new_tokens=count, eos_token_id=-1, record_timestamps=True))
        wait = due[len(ids)] - now if len(ids) < len(items) else 1.0
        result = manager.get_result(timeout=min(1.0, wait))
        if result is None:
            if not manager.is_running():
                raise RuntimeError("its continuous batching ended early")
        elif result.is_finished():
            if result.error:
                raise RuntimeError(result.error)
            results[result.request_id] = result
            done(len(results))
    return [results[id] for id in ids]


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
