"""llama.cpp's server inside this process (xllamacpp), asked by as many clients as it has slots."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import xllamacpp
from serve import Peer, Tokens, Workload, serve

_CONTEXT = 1024
_TIMEOUT = 1800


def load(options: dict[str, Any]) -> Peer:
    slots = options["slots"]
    params = xllamacpp.CommonParams()
    params.model.path = options["gguf"]
    params.n_parallel = slots
    params.n_ctx = _CONTEXT * slots
    params.n_batch, params.n_ubatch = 2048, 512
    params.cont_batching = True
    params.n_gpu_layers = 0
    params.warmup = True
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = options["threads"]
    params.slot_prompt_similarity = 0.1
    params.hostnames, params.port, params.verbosity = ["127.0.0.1"], 18431, -1
    server = xllamacpp.Server(params)
    host = server.listening_address.split("//")[-1].strip("/")

    def complete(request: tuple[list[int], int]) -> list[int]:
        prompt, length = request
        connection = http.client.HTTPConnection(host, timeout=_TIMEOUT)
        body = {
            "prompt": prompt,
            "n_predict": length,
            "temperature": 0,
            "top_k": 1,
            "ignore_eos": True,
            "cache_prompt": True,
            "return_tokens": True,
        }
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/completion", json.dumps(body), headers)
        reply = json.loads(connection.getresponse().read())
        connection.close()
        return list(reply["tokens"])

    def answer(workload: Workload) -> tuple[Tokens, dict[str, Any]]:
        requests = zip(workload.prompts, workload.max_tokens, strict=True)
        with ThreadPoolExecutor(slots) as clients:
            return list(clients.map(complete, requests)), {"server": repr(server)}

    return Peer(
        version=str(getattr(xllamacpp, "__version__", "?")),
        settings={"n_parallel": slots, "n_ubatch": 512, "weights": "F32", "kv": "F16"},
        answer=answer,
    )


if __name__ == "__main__":
    serve(load)
