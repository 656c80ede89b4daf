from __future__ import annotations

import io
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchjobs.errors import InvalidRequestError
from batchjobs.jsonl import (
    MAX_CONTAINERS,
    NOT_JSON,
    RawLine,
    dump_line,
    escape_separators,
    json_type,
    parse_object,
    read_lines,
)

LIMIT = 1024
BOM = b"\xef\xbb\xbf"


def read(data: bytes, limit: int = LIMIT) -> list[RawLine]:
    return list(read_lines(io.BytesIO(data), limit))


def read_data(data: bytes) -> list[bytes | None]:
    return [line.data for line in read(data)]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\n", [b"a\r"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\n\na\n \t\r\n\n", [b"a"]),
        (BOM + b"a\n", [b"a"]),
        (BOM + b"\na\n", [b"a"]),
        (b"a\n" + BOM + b"b\n", [b"a", BOM + b"b"]),
        ("a\u2028b\u2029c\u0085d\x0b\x0c\x1ce\n".encode(), ["a\u2028b\u2029c\u0085d\x0b\x0c\x1ce"]),
    ],
)
def test_lines_end_at_line_feeds_only(data: bytes, lines: list[bytes | str]) -> None:
    expected = [line.encode() if isinstance(line, str) else line for line in lines]
    assert read_data(data) == expected


def test_blank_lines_count_in_numbers_and_offsets() -> None:
    assert read(BOM + b"a\r\n\n  \nbc") == [RawLine(1, 0, 6, b"a"), RawLine(4, 10, 12, b"bc")]


def test_a_range_of_a_file_keeps_its_numbers_and_offsets() -> None:
    whole = b"one\n\n" + BOM + b"three\nfour"
    start = whole.index(BOM)
    part = list(read_lines(io.BytesIO(whole[start:]), LIMIT, first_number=3, start=start))
    assert part == read(whole)[1:]
    assert part[0].data == BOM + b"three"


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("start", [b"", BOM])
def test_a_line_of_exactly_the_limit_is_read_and_one_more_is_not(start: bytes, end: bytes) -> None:
    fits, too_long = b"x" * LIMIT, b"x" * (LIMIT + 1)
    assert read_data(start + fits + end) == [fits]
    assert read_data(start + too_long + end) == [None]


def test_an_overlong_line_is_marked_and_the_next_one_is_read() -> None:
    data = b"y" * (1 << 20) + b"\nnext\n"
    assert read(data) == [
        RawLine(1, 0, (1 << 20) + 1, None),
        RawLine(2, (1 << 20) + 1, len(data), b"next"),
    ]


def test_memory_stays_small_for_one_giant_line() -> None:
    stream = io.BytesIO(b"z" * (32 << 20))
    tracemalloc.start()
    assert [line.data for line in read_lines(stream, LIMIT)] == [None]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=8))
def test_every_byte_is_in_one_line_or_in_a_blank_one(lines: list[bytes]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    for raw in read(data):
        assert raw.number == data.count(b"\n", 0, raw.start) + 1
        line = data[raw.start : raw.end].removesuffix(b"\n").removesuffix(b"\r")
        assert line.removeprefix(BOM if raw.start == 0 else b"") == raw.data
    kept = {raw.number for raw in read(data)}
    blank = [lines[number - 1] for number in range(1, len(lines) + 1) if number not in kept]
    assert all(not line.removeprefix(BOM).strip() for line in blank)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": 1} {"b": 2}',
        b'{"a": "\\ud800"}',
        b'{"a": 1e999}',
        b"[" * 2000 + b"]" * 2000,
    ],
)
def test_text_that_is_not_json_is_refused_in_the_public_words(data: bytes) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_object(data)
    assert (refused.value.message, refused.value.code) == (NOT_JSON, "invalid_json_line")


def test_text_that_is_not_utf8_is_told_apart_and_located() -> None:
    with pytest.raises(InvalidRequestError, match=r"not UTF-8: byte 8 of it is 0xe9") as refused:
        parse_object('{"a": "é"}'.encode("latin-1"))
    assert refused.value.code == "invalid_json_line"


def test_utf16_text_is_called_not_utf8() -> None:
    with pytest.raises(InvalidRequestError, match="not UTF-8"):
        parse_object('{"a": 1}'.encode("utf-16"))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"[1]", "an array"),
        (b'"text"', "a string"),
        (b"3", "an integer"),
        (b"3.5", "a decimal number"),
        (b"true", "a boolean"),
        (b"null", "null"),
    ],
)
def test_json_that_is_not_an_object_is_refused_by_its_type(data: bytes, found: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"but it is {found}"):
        parse_object(data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":[' + b"[]," * MAX_CONTAINERS + b"[]]}",
        b'{"a":[' + b"1," * 2_100_000 + b"1]}",
    ],
)
def test_a_line_that_would_take_much_more_memory_than_it_has_bytes_is_refused(data: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(InvalidRequestError, match="more than 250,000 arrays and objects"):
        parse_object(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_long_line_of_plain_text_is_parsed() -> None:
    text = "word " * 200_000
    assert parse_object(json.dumps({"a": text}).encode()) == {"a": text}


def test_objects_are_called_objects() -> None:
    assert json_type({}) == "an object"


def test_a_dumped_line_is_one_line_for_naive_readers() -> None:
    text = "a\u2028b\u2029c\u0085d\ve\ff\x1cg\x1dh\x1ei\r\nj"
    line = dump_line({"text": text})
    assert line.endswith(b"}\n")
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == {"text": text}


def test_other_text_is_dumped_as_utf8() -> None:
    assert dump_line({"text": "né 猫 🐈"}) == '{"text":"né 猫 🐈"}\n'.encode()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_dumped_text_comes_back_whole(text: str) -> None:
    line = dump_line({"text": text})
    assert len(line.decode().splitlines()) == 1
    assert parse_object(line.removesuffix(b"\n")) == {"text": text}


def test_escaping_leaves_other_bytes_alone() -> None:
    data = '{"a":"\u00c2\u0080\u2027\u202a"}'.encode()
    assert escape_separators(data) == data
