"""Our engine, with the settings of the environment; also measures the machine's peak.

Options: `settings` go before those of the environment (`batchjobs.settings`), `scheduling` before
what follows from them (`executor.settings.Scheduling`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import psutil
from serve import Peer, Tokens, Workload, serve

from batchjobs import __version__
from batchjobs.models import Model
from batchjobs.settings import Settings
from batchjobs.worker.engines import CheckpointEngines, LoadedModel
from executor.recorder import Recorder
from executor.request import Request, SamplingParams
from executor.threads import yield_when_idle


def load(options: dict[str, Any]) -> Peer:
    yield_when_idle()
    from executor.linear import Packing
    from executor.memory import wait_for_memory
    from executor.peak import measure_peak

    loaded = load_engine(options)
    types = loaded.device.types
    packing = Packing(weights=types.weights, products=types.products)
    engine, recorder = loaded.engine, Recorder(loaded.cost)
    engine.watcher = recorder
    wait_for_memory()

    def answer(workload: Workload) -> tuple[Tokens, dict[str, Any]]:
        before = psutil.Process().memory_info().rss
        recorder.begin()
        started = time.perf_counter()
        done = {c.request_id: list(c.choices[0].token_ids) for c in engine.run(requests(workload))}
        wall = time.perf_counter() - started
        recorder.end()
        peak = measure_peak(packing=packing)
        figures: dict[str, Any] = {
            "wall_s": wall,
            "rss_before_mib": before / (1 << 20),
            "sgemm_best_gflops": peak.flops / 1e9,
            "sgemm_median_gflops": peak.median_flops / 1e9,
            "read_gbytes_per_second": peak.bandwidth / 1e9,
            "occupancy": recorder.mean_running / engine.limits.max_num_seqs,
        }
        if recorder.tally is not None:
            figures["flops"] = recorder.tally.flops
            figures["share_of_roofline"] = recorder.tally.share_of_roofline(peak, wall)
            if (packed := peak.with_packed_weights) is not None:
                figures["packed_best_gflops"] = packed.flops / 1e9
                figures["packed_share"] = recorder.tally.share_of_roofline(packed, wall)
        if loaded.profile is not None:
            spent = loaded.profile.report()
            figures["profile"] = {part.name: part.seconds for part in spent.parts}
        return [done[str(i)] for i in range(len(workload.prompts))], figures

    def prepare() -> None:
        for _ in engine.run(requests(Workload(prompts=[[1] * 20] * 2, max_tokens=[4, 4]))):
            pass
        if loaded.profile is not None:
            loaded.profile.reset()

    return Peer(
        version=__version__, settings=described(loaded, options), answer=answer, prepare=prepare
    )


def load_engine(options: dict[str, Any]) -> LoadedModel:
    """The engine as a job uses it, but for what the options ask for."""
    settings = Settings.load(**options["settings"])
    model = Model(name="model", source=options["model"], revision=None)
    loaded = CheckpointEngines(settings, profiled=options.get("profile", False)).load(model)
    engine: Any = loaded.engine  # a Runner, which does not show how it schedules
    engine.scheduling = replace(engine.scheduling, **options["scheduling"])
    return loaded


def described(loaded: LoadedModel, options: dict[str, Any]) -> dict[str, Any]:
    """What was asked for and what was decided."""
    assert loaded.device is not None, "a checkpoint's engine has a device"
    return {
        "asked": {**options["settings"], **options["scheduling"]},
        "dtype": str(loaded.device.types.products).removeprefix("torch."),
        "max_num_seqs": loaded.engine.limits.max_num_seqs,
        "max_num_batched_tokens": loaded.engine.limits.max_num_batched_tokens,
        "decisions": dict(loaded.decisions),
    }


def requests(workload: Workload) -> list[Request]:
    pairs = zip(workload.prompts, workload.max_tokens, strict=True)
    return [
        Request(
            id=str(number),
            prompt_token_ids=tuple(prompt),
            sampling=SamplingParams(
                temperature=0, max_tokens=tokens, ignore_eos=not workload.natural
            ),
        )
        for number, (prompt, tokens) in enumerate(pairs)
    ]


if __name__ == "__main__":
    serve(load)
