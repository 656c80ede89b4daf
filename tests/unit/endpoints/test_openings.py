from __future__ import annotations

from typing import Any

import pytest

from batchjobs.endpoints.openings import MAX_CHARS, opening_of


@pytest.mark.parametrize(
    ("value", "opening"),
    [
        ("Once upon", "Once upon"),
        (["first", "second"], "first\0second"),
        ([1, 22, 3], "1\x0022\x003"),
        ([{"role": "system", "content": "Be brief."}], "system\0Be brief."),
        ([{"content": "Be brief.", "role": "system", "name": "x"}], "system\0Be brief."),
        ([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "user\0Hi"),
        (None, ""),
        ([{"role": 1}, None, {"image_url": {}}, [{"deep": "x"}]], ""),
    ],
)
def test_opening_is_the_text_in_order(value: Any, opening: str) -> None:
    assert opening_of(value) == opening


def test_same_text_in_other_messages_is_another_opening() -> None:
    asked, said = ([{"role": role, "content": "Hi"}] for role in ("user", "assistant"))
    assert opening_of(asked) != opening_of(said)


def test_opening_is_bounded() -> None:
    assert len(opening_of(["a" * MAX_CHARS, "b"])) == MAX_CHARS
    assert len(opening_of(["ab"] * MAX_CHARS)) <= MAX_CHARS + 2
