"""OpenVINO GenAI's continuous batching as a peer, run by any Python that has ``openvino-genai``, as a plain file.

It speaks as :mod:`.baselines` does; ``model`` is a folder that optimum exported, ``kv_precision`` that of its KV cache.
Nothing of this package is imported, which that Python need not have.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

BLOCK = 32  # tokens in a block of its cache on the CPU
WARM_UP = (16, 4)  # prompt and output tokens


def main() -> None:
    job = json.load(sys.stdin)
    import numpy
    import openvino
    import openvino_genai

    items = [(prompt, count) for prompt, count in job["items"]]
    begin = time.perf_counter()
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = sum(-(-(len(prompt) + count) // BLOCK) for prompt, count in items) + len(items)
    scheduler.max_num_seqs = 256
    beginnings = [tuple(prompt[:BLOCK]) for prompt, _ in items]
    scheduler.enable_prefix_caching = len(set(beginnings)) < len(items)  # where there is something to share
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        job["model"],
        scheduler,
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": "f32",
            "KV_CACHE_PRECISION": job["kv_precision"],
            "INFERENCE_NUM_THREADS": job["threads"],
        },
    )
    _say(loaded=time.perf_counter() - begin)

    def add(number: int, prompt: list[int], count: int) -> Any:
        generation = openvino_genai.GenerationConfig()
        generation.max_new_tokens = count
        generation.ignore_eos = True
        generation.do_sample = False
        return pipeline.add_request(number, openvino.Tensor(numpy.array([prompt], numpy.int64)), generation)

    def serve(items: list[tuple[list[int], int]], due: list[float], report: bool) -> dict[str, Any]:
        handles: list[Any] = []
        begin = time.perf_counter()
        outputs: list[list[int]] = [[] for _ in items]
        arrivals: list[list[float]] = [[] for _ in items]
        live: set[int] = set()
        done = 0
        while done < len(items):
            now = time.perf_counter() - begin
            if not live:
                time.sleep(max(0.0, due[len(handles)] - now))
            while len(handles) < len(items) and due[len(handles)] <= time.perf_counter() - begin:
                live.add(len(handles))
                handles.append(add(len(handles), *items[len(handles)]))
            pipeline.step()
            now = time.perf_counter() - begin
            for number in list(live):
                while handles[number].can_read():
                    for part in handles[number].read().values():
                        outputs[number] += part.generated_ids
                        arrivals[number] += [now] * len(part.generated_ids)
                if len(outputs[number]) >= items[number][1]:
                    live.remove(number)
                    done += 1
                    if report:
                        _say(done=done)
        return {"finished": [times[-1] for times in arrivals], "outputs": outputs, "arrivals": arrivals}

    warm = [(prompt[: WARM_UP[0]], WARM_UP[1]) for prompt, _ in items[:8]]
    serve(warm, [0.0] * len(warm), report=False)
    _say(done=0)
    _say(**serve(items, job["due"], report=True))


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
