from __future__ import annotations

from pathlib import Path

import pytest

from batchjobs.cli.model_words import MAX_TEMPLATE_BYTES, read_sampling_words, read_template
from batchjobs.errors import UsageError


def test_values_are_json() -> None:
    words = ["temperature=0.2", "top_k=5"]
    assert read_sampling_words(words) == {"temperature": 0.2, "top_k": 5}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("temperature", "takes NAME=VALUE, as in temperature=0.2, not 'temperature'"),
        ("temperature=hot", "'temperature'"),
        ("temperature=3", "'temperature'"),
        ("seed=1", "Supported values are: 'temperature'"),
        ("colour=red", "Supported values are: 'temperature'"),
    ],
)
def test_a_word_that_cannot_be_a_default_is_refused(word: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_sampling_words([word])
    assert said in str(refused.value)


def test_templates_with_transformers_own_tags_are_read(tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    text = "{% for m in ms %}{% generation %}m{% endgeneration %}{% break %}{% endfor %}"
    file.write_text(text)
    assert read_template(file) == text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"ok\n{% for %}", "chat.jinja, line 2: "),
        (b"\xff", "is not UTF-8"),
        (b"x" * (MAX_TEMPLATE_BYTES + 1), "1 MiB at most"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_template_is_refused(
    tmp_path: Path, data: bytes | None, said: str
) -> None:
    file = tmp_path / "chat.jinja"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        read_template(file)
    assert said in str(refused.value)
