"""vLLM on CPU through its offline `LLM.generate`.

Options: `dtype`, where "auto" is vLLM's own choice; `slots` None leaves the limits of a step to it.
"""

from __future__ import annotations

import os
from typing import Any

from serve import Peer, Tokens, Workload, serve


def load(options: dict[str, Any]) -> Peer:
    threads = options["threads"]
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(options["kv_cache_gib"]))
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{threads - 1}")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    import vllm

    engine = vllm.LLM(
        options["model"],
        seed=0,
        dtype=options["dtype"],
        max_model_len=options["max_model_len"],
        enable_prefix_caching=True,
        **_limits(options["slots"]),
    )

    def answer(workload: Workload) -> tuple[Tokens, dict[str, Any]]:
        params = [
            vllm.SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=not workload.natural)
            for tokens in workload.max_tokens
        ]
        prompts = [{"prompt_token_ids": prompt} for prompt in workload.prompts]
        outputs = engine.generate(prompts, params, use_tqdm=False)
        return [_tokens(output.outputs[0]) for output in outputs], {}

    def prepare() -> None:
        answer(Workload(prompts=[[1, 2, 3, 4, 5] * 4], max_tokens=[8]))
        engine.reset_prefix_cache()

    return Peer(
        version=vllm.__version__,
        settings=_settings(engine.llm_engine.vllm_config, options),
        answer=answer,
        prepare=prepare,
    )


def _limits(slots: int | None) -> dict[str, int]:
    return {} if slots is None else {"max_num_seqs": slots, "max_num_batched_tokens": 2048}


def _tokens(completion: Any) -> list[int]:
    """Without the end-of-sequence token that ended it."""
    tokens = list(completion.token_ids)
    return tokens[:-1] if completion.finish_reason == "stop" else tokens


def _settings(config: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What the engine made of the options."""
    scheduler, cache = config.scheduler_config, config.cache_config
    return {
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "kv_cache_dtype": cache.cache_dtype,
        "max_model_len": config.model_config.max_model_len,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "kv_cache_gib": options["kv_cache_gib"],
    }


if __name__ == "__main__":
    serve(load)
