from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchjobs.evals.suite_file import InvalidSuiteError, read_suite

GOOD = """\
suite: arithmetic
dataset:
  source: items.jsonl
model: tiny
request:
  prompt: |
    What is {{ a }}?
    Think.
scorers:
  - type: numeric
    target: "{{ b }}"
"""


def write(tmp_path: Path, text: str, name: str = "suite.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def complaints(tmp_path: Path, text: str, name: str = "suite.yaml") -> list[str]:
    path = write(tmp_path, text, name)
    with pytest.raises(InvalidSuiteError) as caught:
        read_suite(path)
    sentences = [caught.value.message, *getattr(caught.value, "__notes__", ())]
    return [sentence.replace(str(path), name) for sentence in sentences]


def test_a_suite_is_read_with_what_it_does_not_say(tmp_path: Path) -> None:
    suite = read_suite(write(tmp_path, GOOD)).suite
    assert (suite.deciding, suite.repeats, suite.models) == ("numeric", 1, ("tiny",))
    assert suite.request.sampling.temperature == 0


def test_the_same_suite_may_be_json(tmp_path: Path) -> None:
    same = {
        "suite": "arithmetic",
        "dataset": {"source": "items.jsonl"},
        "model": "tiny",
        "request": {"prompt": "What is {{ a }}?\nThink.\n"},
        "scorers": [{"type": "numeric", "target": "{{ b }}"}],
    }
    path = write(tmp_path, json.dumps(same, indent="\t"), "suite.json")
    assert read_suite(path).suite == read_suite(write(tmp_path, GOOD)).suite


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("model: tiny", "modle: tiny", "line 4: modle is not known here; correct its spelling"),
        ("    Think.", "    {{ x", "line 8: request.prompt: the template cannot be read"),
        ('"{{ b }}"', '"{{ b"', "line 11: scorers[0].target: the template cannot be read"),
        ("  source: items.jsonl\n", "  limit: 3\n", "line 2: dataset.source is missing."),
        ("numeric", "numerical", "line 10: scorers[0].type: 'numerical' is not one of 'exact', "),
        ("- type: numeric", "- name: x", "line 10: scorers[0].type is missing."),
        (
            "- type: numeric\n    target",
            "- numeric\n  - target",
            "line 10: scorers[0]: input should",
        ),
        ("model: tiny", "model: tiny\ntags: x", "line 5: tags: input should be a list."),
        ("  source: items.jsonl\n", "  - a\n", "line 2: dataset: input should be a mapping"),
        ("model: tiny", "model: [tiny, tiny]", "line 1: the suite: `model` has 'tiny' twice."),
        ("items.jsonl", "http://[::1/items.jsonl", "line 3: dataset.source: "),
        ("items.jsonl", "http:///items.jsonl", "line 3: dataset.source: 'http:///items.jsonl' is"),
        ("items.jsonl", "s3://bucket", "line 3: dataset.source: 's3://bucket' is neither a path"),
        ("items.jsonl", "ftp://host/a.jsonl", "line 3: dataset.source: 'ftp://host/a.jsonl' is"),
        ("suite: arithmetic", "suite: no spaces", "line 1: suite: string should match pattern"),
        ("model: tiny", "model: tiny\nrepeats: 0", "line 5: repeats: input should be greater"),
        ("model: tiny", "model: tiny\nmetric: acc", "line 1: the suite: `metric` is 'acc', but"),
        ("model: tiny", "model: tiny\nmodel: big", "line 5: `model` is there twice."),
        ("  prompt: |", "  prompt: [", "line 7:"),
        ("suite: arithmetic\n", "suite: arithmetic\n\tx: 1\n", "line 2:"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    found = complaints(tmp_path, GOOD.replace(old, new, 1))
    assert found[0].startswith(f"suite.yaml {sentence}")


def test_every_mistake_is_told_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = GOOD.replace("model: tiny", "repeats: x\nseed: 1").replace("target", "goal")
    lines = [int(sentence.split()[2].rstrip(":")) for sentence in complaints(tmp_path, text)]
    assert lines == sorted(lines)
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "a suite is a mapping that begins with `suite: NAME`; this is empty."),
        ("- 1\n", "a suite is a mapping that begins with `suite: NAME`; this is something else."),
        ("? [a]\n: 1\n", "line 1: a key must be a word."),
        ("a: !!python/object:os.system x\n", "line 1: could not determine a constructor"),
    ],
)
def test_what_is_no_suite_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    assert sentence in complaints(tmp_path, text)[0]


def test_few_bytes_that_stand_for_much_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "more than 200,000 values" in complaints(tmp_path, "\n".join(lines))[0]


def test_words_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    text = GOOD.replace(
        "  prompt: |",
        "  endpoint: completions\n  choices: [yes, 007, 1e3, 2026-01-02]\n  prompt: |",
    ).replace("type: numeric\n    target", "type: choice\n    gold")
    found = complaints(tmp_path, text)
    # 1e3 is a number, and the others are text.
    assert found[0].startswith("suite.yaml line 7: request.choices[2]: input should be a valid")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("  prompt: |", "  messages: [{role: user, content: x}]\n  prompt: |", "say what to ask"),
        ("  prompt: |", "  body: {n: 2}\n  prompt: |", "`body` may not have `n`"),
        ("  prompt: |", "  choices: a\n  prompt: |", "needs `endpoint: completions`"),
        ("scorers:", "repeats: 2\nscorers:\n  - {type: numeric, target: '1'}", "two scorers give"),
        ('numeric\n    target: "{{ b }}"', "choice\n    gold: b", "goes with `choices`"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    assert sentence in complaints(tmp_path, GOOD.replace(old, new, 1))[0]
