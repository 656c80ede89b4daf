"""OpenVINO GenAI's ContinuousBatchingPipeline on an exported model, KV cache in float32.

Option `primed`: the first request is sent alone, so that the others find its prefix in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino
import openvino_genai
from serve import Peer, Tokens, Workload, serve


def load(options: dict[str, Any]) -> Peer:
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_seqs = options["slots"]
    scheduler.max_num_batched_tokens = 512
    scheduler.cache_size = 3
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = True
    properties = {
        "INFERENCE_NUM_THREADS": options["threads"],
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
    }
    primed = 1 if options.get("primed") else 0
    pipeline: list[Any] = []

    def prepare() -> None:
        """A fresh pipeline: the prefix cache must not outlive a workload."""
        pipeline.clear()
        pipeline.append(
            openvino_genai.ContinuousBatchingPipeline(
                options["export"], scheduler, "CPU", properties
            )
        )
        generate([[1, 2, 3, 4, 5] * 4], [8])

    def generate(prompts: Tokens, lengths: list[int]) -> Tokens:
        if not prompts:
            return []
        tensors = [openvino.Tensor(np.array([prompt], dtype=np.int64)) for prompt in prompts]
        results = pipeline[0].generate(tensors, [_config(length) for length in lengths])
        return [list(result.m_generation_ids[0]) for result in results]

    def answer(workload: Workload) -> tuple[Tokens, dict[str, Any]]:
        first = generate(workload.prompts[:primed], workload.max_tokens[:primed])
        return first + generate(workload.prompts[primed:], workload.max_tokens[primed:]), {}

    return Peer(
        version=openvino_genai.__version__,
        settings={"max_num_seqs": options["slots"], "max_num_batched_tokens": 512, **properties},
        answer=answer,
        prepare=prepare,
    )


def _config(length: int) -> Any:
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = length
    config.ignore_eos = True
    config.do_sample = False
    return config


if __name__ == "__main__":
    serve(load)
