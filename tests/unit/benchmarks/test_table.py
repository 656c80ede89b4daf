"""Raw records of measurements → ratios."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.table import ratios


def record(engine: str, repeat: int, wall: float, **more: Any) -> dict[str, Any]:
    return {
        "run": "r1",
        "engine": engine,
        "version": "1.2",
        "workload": "mixed",
        "requests": 8,
        "repeat": repeat,
        "wall_s": wall,
        "equal_answers": 8 - repeat,
        "load1": 1.5,
        **more,
    }


RECORDS = [
    record("ours", 0, 10.0, share_of_roofline=0.5),
    record("peer", 0, 30.0),
    record("ours", 1, 20.0, share_of_roofline=0.7),
    record("peer", 1, 20.0),
    record("ours", 2, 12.0, share_of_roofline=0.6),
    record("peer", 2, 24.0, load1=2.5),
]


def test_ratios_are_of_medians_with_the_range_of_neighbours() -> None:
    ours = [r for r in RECORDS if r["engine"] == "ours"]
    theirs = [r for r in RECORDS if r["engine"] == "peer"]
    assert ratios(ours, theirs) == (24.0 / 12.0, 1.0, 3.0)


def test_the_table_has_a_row_for_each_peer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "raw.jsonl"
    growth = {"workload": "growth", "run": "g"}
    raw.write_text("".join(f"{json.dumps(value)}\n" for value in (*RECORDS, growth)))
    main(["--table", str(raw)])
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| mixed, 8 | peer 1.2 | 12.0 | 24.0 | **2.00×** (1.00–3.00) | 3 | 6 of 8 | 60% | 2.5 |"
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody", "mixed"], "'nobody' is none of"),
        (["vllm-cpu", "odd"], "'odd' is none of"),
        (["vllm-cpu"], "Name a workload"),
        (["llama.cpp", "mixed"], "needs --gguf"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_sentence(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    with pytest.raises(SystemExit, match=words):
        main([*arguments, "--model", str(tmp_path)])
