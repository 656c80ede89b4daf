"""Datasets and the requests made of them."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchjobs.errors import InvalidFileError
from batchjobs.evals.material import gather
from batchjobs.evals.rendering import PlannedLine
from batchjobs.evals.suite_file import read_suite
from batchjobs.settings import Settings
from batchjobs.store.s3.bucket import Bucket
from tests.support.evals import rows, write_suite
from tests.support.servers.s3 import S3Server


def lines(path: Path) -> list[PlannedLine]:
    with gather(read_suite(path), Settings.load()) as material:
        return list(material.lines("tiny", seed=5))


def suite_of(tmp_path: Path, **changes: Any) -> Path:
    return write_suite(tmp_path, rows(3), **changes)


def test_an_item_is_rendered_into_a_chat(tmp_path: Path) -> None:
    request = {"system": "Be {{ kind }}.", "prompt": "{{ n }}?", "sampling": {"max_tokens": 7}}
    [first, *_] = lines(suite_of(tmp_path, request=request))
    assert first.body == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be even."},
            {"role": "user", "content": "0?"},
        ],
        "temperature": 0.0,
        "max_tokens": 7,
        "seed": 5,
    }
    assert (first.item.id, first.item.tags, first.custom_id) == ("item-0", ("kind=even",), "0-0")


def test_examples_are_turns_of_a_chat_and_text_of_a_completion(tmp_path: Path) -> None:
    few = {"items": [{"n": 8}, {"n": 9}], "count": 1, "answer": " is {{ n }}"}
    chat = {"prompt": "{{ n }}?", "fewshot": few}
    [first, *_] = lines(suite_of(tmp_path, request=chat))
    assert [turn["content"] for turn in first.body["messages"]] == ["8?", " is 8", "0?"]
    text = {"endpoint": "completions", "system": "Sums.\n", **chat}
    [first, *_] = lines(suite_of(tmp_path, request=text))
    assert first.body["prompt"] == "Sums.\n8? is 8\n\n0?"


def test_choices_are_asked_about_behind_the_context_alone(tmp_path: Path) -> None:
    request = {"endpoint": "completions", "prompt": "It is ", "choices": "[kind, 'so']"}
    path = suite_of(tmp_path, request=request, scorers=[{"type": "choice", "gold": "kind"}])
    [first, *_] = lines(path)
    assert first.body == {
        "model": "tiny",
        "prompt": ["It is", "It is  even", "It is  so"],
        "echo": True,
        "logprobs": 1,
        "max_tokens": 0,
        "temperature": 0.0,
    }


def test_samples_differ_in_their_seeds_alone(tmp_path: Path) -> None:
    first, second, *_ = lines(suite_of(tmp_path, repeats=2))
    assert (first.body["seed"], second.body["seed"]) == (5, 6)
    assert {**first.body, "seed": 6} == second.body
    named = {"endpoint": "completions", "prompt": "{{ n }}", "sampling": {"seed": 40}}
    assert lines(suite_of(tmp_path, request=named))[0].body["seed"] == 40


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"request": {"prompt": "{{ m }}"}}, r"Item item-0: .*'m' is undefined.*has: id, kind, n"),
        ({"request": {"prompt": "{{ n.__class__.__mro__ }}"}}, "Item item-0: .*unsafe"),
        ({"scorers": [{"type": "numeric", "target": "{{ kind }}"}]}, "does not fit the scorer"),
        ({"dataset": {"source": "gone.jsonl"}}, "cannot be read"),
        ({"dataset": {"source": "items.jsonl", "tags": ["size"]}}, "row 1 has no field 'size'"),
        (
            {"dataset": {"source": "items.jsonl", "id": "kind"}},
            "row 3 has the id 'even' of another",
        ),
        ({"dataset": {"source": "items"}}, "cannot be read"),
    ],
)
def test_an_item_that_does_not_fit_is_named(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidFileError, match=sentence):
        lines(suite_of(tmp_path, **changes))


def test_a_dataset_must_tell_its_format(tmp_path: Path) -> None:
    (tmp_path / "items.txt").write_text("{}")
    path = suite_of(tmp_path, dataset={"source": "items.txt"})
    with pytest.raises(InvalidFileError, match="write `format: jsonl`"):
        lines(path)


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = suite_of(tmp_path)
    (tmp_path / "items.jsonl").write_text('{"n": 1, "kind": "odd"}\n\nn=2\n')
    with pytest.raises(InvalidFileError, match=r"items\.jsonl line 3: .*not parseable"):
        lines(path)


def test_csv_and_parquet_have_the_same_items(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    texts = [{"id": row["id"], "n": str(row["n"]), "kind": row["kind"]} for row in rows(3)]
    (tmp_path / "items.csv").write_text(
        "\ufeffid,n,kind\n" + "".join(f"{t['id']},{t['n']},{t['kind']}\n" for t in texts)
    )
    parquet.write_table(pyarrow.Table.from_pylist(texts), tmp_path / "items.parquet")
    found = [
        [line.item for line in lines(suite_of(tmp_path, dataset={"source": f"items.{kind}"}))]
        for kind in ("csv", "parquet")
    ]
    assert found[0] == found[1]
    assert [item.fields["n"] for item in found[0]] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"n,kind\n1,odd\n2\n", r"items\.csv line 3: .* not as many cells"),
        (b"n,kind\n1,odd,x\n", r"items\.csv line 2: .* not as many cells"),
        (b"n,kind\n1,odd\n2,\xff\n", r"items\.csv line 3 is not UTF-8"),
        (b'n,kind\n"1,odd\n', r"items\.csv line 2: unexpected end of data\."),
        (b"n,kind,n\n1,odd,2\n", r"items\.csv line 1: two columns are called 'n'\."),
        (b"n;kind\n1;odd\n", r"'n' is undefined \(the item has: n;kind\)"),
        (b"", "has no rows"),
        (b"n,kind\n", "has no rows"),
    ],
)
def test_a_csv_that_cannot_be_used_is_told_with_its_line(
    tmp_path: Path, data: bytes, sentence: str
) -> None:
    (tmp_path / "items.csv").write_bytes(data)
    with pytest.raises(InvalidFileError, match=sentence):
        lines(suite_of(tmp_path, dataset={"source": "items.csv"}))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_of_a_csv_end_in_any_of_three_ways(tmp_path: Path, end: str) -> None:
    cell = f"7{end}" + "x" * 200_000
    (tmp_path / "items.csv").write_bytes(f'n,kind{end}"{cell}",odd{end}2,even{end}'.encode())
    items = [line.item for line in lines(suite_of(tmp_path, dataset={"source": "items.csv"}))]
    assert [item.fields["n"] for item in items] == [cell, "2"]


def test_what_is_no_file_is_not_read_without_an_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InvalidFileError, match=r"pipe\.jsonl is not a file"):
        lines(suite_of(tmp_path, dataset={"source": "pipe.jsonl"}))


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "items.parquet").write_text("n")
    with pytest.raises(InvalidFileError, match=r"cannot be read as parquet: [^\n]*[^.]\.$"):
        lines(suite_of(tmp_path, dataset={"source": "items.parquet"}))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """The URL of a server of one dataset."""
    data = "".join(json.dumps(row) + "\n" for row in rows(2)).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/items.jsonl" else 404)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_dataset_is_fetched_over_http(tmp_path: Path, site: str) -> None:
    found = lines(suite_of(tmp_path, dataset={"source": f"{site}/items.jsonl"}))
    assert [line.item.id for line in found] == ["item-0", "item-1"]
    with pytest.raises(InvalidFileError, match="its server answered 404"):
        lines(suite_of(tmp_path, dataset={"source": f"{site}/gone.jsonl"}))


def test_examples_that_give_the_answers_away_are_refused(tmp_path: Path) -> None:
    few = {"source": "items.jsonl", "answer": "{{ n }}"}
    with pytest.raises(InvalidFileError, match="give away"):
        lines(suite_of(tmp_path, request={"prompt": "{{ n }}", "fewshot": few}))


def test_a_dataset_is_fetched_from_s3(
    tmp_path: Path, s3: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = "".join(json.dumps(row) + "\n" for row in rows(2)).encode()
    bucket.client.put_object(Bucket=bucket.name, Key=f"{bucket.prefix}items.jsonl", Body=data)
    monkeypatch.setenv("BATCHJOBS_S3_ENDPOINT_URL", str(s3.endpoint_url))
    found = lines(suite_of(tmp_path, dataset={"source": f"{s3.url}/items.jsonl"}))
    assert [line.item.id for line in found] == ["item-0", "item-1"]
    with pytest.raises(InvalidFileError, match=r"cannot be had: .*NoSuchKey"):
        lines(suite_of(tmp_path, dataset={"source": f"{s3.url}/gone.jsonl"}))
