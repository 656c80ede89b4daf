"""Our engine, and what its process has of memory: before it is loaded, after that, after a run.

Nothing is timed, and the machine's peak is not measured, which takes memory of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ours import described, load_engine, requests
from serve import Peer, Tokens, Workload, serve

from batchjobs import __version__
from benchmarks.held import caches_of, held_bytes
from executor.threads import yield_when_idle


def load(options: dict[str, Any]) -> Peer:
    yield_when_idle()
    import transformers  # noqa: F401  (so that it counts as a library)

    from executor.memory import wait_for_memory

    libraries = process_memory()["VmRSS"]
    loaded = load_engine(options)
    wait_for_memory()
    for cache in caches_of(loaded.engine):
        for tensor in cache.tensors:
            tensor.zero_()
    after_loading = process_memory()["VmHWM"]

    def answer(workload: Workload) -> tuple[Tokens, dict[str, Any]]:
        done = {c.request_id: c for c in loaded.engine.run(requests(workload))}
        used = process_memory()
        packed, cache = held_bytes(loaded.engine)
        figures = {
            "packed": packed,
            "cache": cache,
            "libraries": libraries,
            "loaded": after_loading,
            "peak": used["VmHWM"],
            "anonymous": used["RssAnon"],
            "mapped": used["RssFile"],
        }
        answers = [list(done[str(i)].choices[0].token_ids) for i in range(len(done))]
        return answers, {"memory": figures}

    return Peer(version=__version__, settings=described(loaded, options), answer=answer)


def process_memory() -> dict[str, int]:
    """Bytes by the names that Linux has for them, of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines)
    return {name: int(text.split()[0]) * 1024 for name, text in pairs if text.endswith("kB")}


if __name__ == "__main__":
    serve(load)
