"""vLLM on CPU through its offline `LLM.generate`."""

from __future__ import annotations

import os
from typing import Any

from serve import Peer, Tokens, Workload, serve


def load(options: dict[str, Any]) -> Peer:
    threads = options["threads"]
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "3")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{threads - 1}")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    import vllm

    settings = {
        "dtype": "float32",
        "max_model_len": 1024,
        "max_num_seqs": options["slots"],
        "max_num_batched_tokens": 2048,
        "enable_prefix_caching": True,
    }
    engine = vllm.LLM(options["model"], seed=0, **settings)

    def answer(workload: Workload) -> tuple[Tokens, dict[str, Any]]:
        params = [
            vllm.SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
            for tokens in workload.max_tokens
        ]
        prompts = [{"prompt_token_ids": prompt} for prompt in workload.prompts]
        outputs = engine.generate(prompts, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs], {}

    def prepare() -> None:
        answer(Workload(prompts=[[1, 2, 3, 4, 5] * 4], max_tokens=[8]))
        engine.reset_prefix_cache()

    return Peer(version=vllm.__version__, settings=settings, answer=answer, prepare=prepare)


if __name__ == "__main__":
    serve(load)
