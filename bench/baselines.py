"""``transformers.generate`` as a peer, in a process of its own: ``python -m pagedeck.bench.baselines``.

Standard input holds one JSON object: ``model`` (a folder, or a GGUF file), ``batch``, ``threads`` and ``items``
(pairs of prompt ids and output length). Standard output is JSON lines: ``{"loaded": seconds}``, ``{"done": requests}``
after each batch, and in the end ``{"finished": [...], "outputs": [...]}``, the former in seconds from the start.

All requests are there at the start and are served in order. With ``batch`` 1 each is generated alone; otherwise
prompts are padded on the left and masked, and a batch ends, for all of its requests, with its longest output.
The KV cache is on, sampling is greedy, weights are float32, and end-of-text does not end a request.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PAD = 0


def main() -> None:
    job = json.load(sys.stdin)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(job["threads"])
    begin = time.perf_counter()
    model = load(Path(job["model"]))
    _say(loaded=time.perf_counter() - begin)
    items = [(prompt, count) for prompt, count in job["items"]]
    generate(model, [(prompt[:16], 4) for prompt, _ in items[: job["batch"]]])  # the first call sets things up
    _say(done=0)
    finished: list[float] = []
    outputs: list[list[int]] = []
    begin = time.perf_counter()
    for first in range(0, len(items), job["batch"]):
        batch = items[first : first + job["batch"]]
        outputs += generate(model, batch)
        finished += [time.perf_counter() - begin] * len(batch)
        _say(done=len(finished))
    _say(finished=finished, outputs=outputs)


def load(path: Path) -> PreTrainedModel:
    """The model in float32 on the CPU, never stopping at an end-of-text token."""
    import torch
    from transformers import AutoModelForCausalLM

    folder, file = (path.parent, path.name) if path.suffix == ".gguf" else (path, None)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    return model.eval()


def generate(model: PreTrainedModel, batch: list[tuple[list[int], int]]) -> list[list[int]]:
    """The greedy outputs of prompts that run together, each of its own length."""
    import torch

    width = max(len(prompt) for prompt, _ in batch)
    longest = max(count for _, count in batch)
    padded = [[PAD] * (width - len(prompt)) + prompt for prompt, _ in batch]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt, _ in batch]
    with torch.inference_mode():
        tokens: Any = model.generate(
            torch.tensor(padded),
            attention_mask=torch.tensor(mask),
            max_new_tokens=longest,
            do_sample=False,
            use_cache=True,
            pad_token_id=PAD,
        )
    assert tokens.shape[1] == width + longest, "generation ended early"
    return [row[width : width + count].tolist() for row, (_, count) in zip(tokens, batch, strict=True)]


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
