"""Scorers, against answers that were scored wrongly somewhere before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from batchjobs.evals.answers import Answer, read_answer
from batchjobs.evals.outcomes import Missing
from batchjobs.evals.scorers import AnyScorer
from batchjobs.evals.scorers.base import BaseScorer, Mark
from batchjobs.evals.scorers.numeric import numbers
from batchjobs.evals.templates import TemplateError

ADAPTER: TypeAdapter[BaseScorer] = TypeAdapter(AnyScorer)
GSM8K_IGNORED = [",", r"\$", r"(?s).*#### ", r"\.$"]
STRICT = r"#### (\-?[0-9\.\,]+)"
FLEXIBLE = r"(-?[$0-9.,]{2,})|(-?[0-9]+)"


def scorer(kind: str, **settings: Any) -> BaseScorer:
    return ADAPTER.validate_python({"type": kind, **settings})


def mark(of: BaseScorer, text: str, *, finish: str = "stop", **fields: Any) -> Mark:
    marks = of.score(fields, Answer(text=text, finish_reason=finish))
    return marks[of.metrics[0]]


@pytest.mark.parametrize("kind", ["exact", "normalised", "contains"])
@pytest.mark.parametrize(("text", "score"), [("Paris", 1.0), ("Rome", 0.0)])
def test_a_text_is_right_or_wrong(kind: str, text: str, score: float) -> None:
    assert mark(scorer(kind, target="{{ city }}"), text, city="Paris").score == score


def test_exact_takes_case_seriously_and_white_space_around_not() -> None:
    exact = scorer("exact", target="Yes")
    assert mark(exact, "\n Yes ").score == 1
    assert mark(exact, "yes").score == 0


def test_normalised_puts_case_punctuation_and_articles_aside() -> None:
    normalised = scorer("normalised", target="The Eiffel Tower")
    assert mark(normalised, "eiffel tower!").score == 1
    assert mark(scorer("normalised", target="The Who", articles=True), "who").score == 0


def test_contains_wants_all_of_several_unless_any_is_enough() -> None:
    every = scorer("contains", target=["red", "blue"])
    one = scorer("contains", target=["red", "blue"], any=True)
    assert (mark(every, "Red only").score, mark(one, "Red only").score) == (0, 1)


@pytest.mark.parametrize(
    ("answer", "strict", "flexible"),
    [
        ("The answer is $70,000.", None, 1.0),
        ("So #### 70,000", 1.0, 1.0),
        ("The profit is 70000.00", None, 0.0),
        ("70000 dollars (about 7 x 10^4)", None, 0.0),
        ("= 70,000. Question 2:", None, 0.0),
        ("70 000", None, 0.0),
        ("**70,000**", None, 1.0),
        ("70000, which is right", None, 1.0),
    ],
)
def test_regex_finds_what_the_gsm8k_filters_find(
    answer: str, strict: float | None, flexible: float
) -> None:
    shared = {"target": "{{ gold }}", "ignore": GSM8K_IGNORED, "ignore_case": True}
    first = scorer("regex", pattern=STRICT, **shared)
    last = scorer("regex", pattern=FLEXIBLE, which="last", **shared)
    found = mark(first, answer, gold="#### 70000")
    assert found.score == strict
    assert found.missing == (None if strict else Missing.UNPARSED)
    assert mark(last, answer, gold="#### 70000").score == flexible


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It costs $1,234.50, not 1,00.", ["1234.50", "1", "0"]),
        ("-3 or −4 but 5-3", ["-3", "-4", "5", "3"]),
        ("1e-3 and .5 and 12%", ["0.001", "0.5", "12"]),
        ("a lone , or . or $ is none; x2 neither", []),
        ("70,000. Then 12,345,678", ["70000", "12345678"]),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, found: list[str]) -> None:
    assert [f"{number:f}" for number in numbers(text)] == found


def test_numeric_compares_decimals_within_its_tolerance() -> None:
    exact = scorer("numeric", target="{{ n }}")
    assert mark(exact, "That makes 70000.00", n=70000).score == 1
    assert mark(exact, "0.1", n="0.1").score == 1
    loose = scorer("numeric", target="{{ n }}", tolerance=0.5, relative=0.01)
    assert [mark(loose, text, n=200).score for text in ("202", "202.1", "199.6")] == [1, 0, 1]


def test_numeric_takes_the_last_number_or_the_first() -> None:
    assert mark(scorer("numeric", target="6"), "2 * 3 = 6").score == 1
    assert mark(scorer("numeric", target="6", which="first"), "2 * 3 = 6").score == 0


def test_numeric_refuses_an_item_whose_target_is_no_number() -> None:
    with pytest.raises(TemplateError, match="is not one number"):
        scorer("numeric", target="{{ n }}").check({"n": "many"})


@pytest.mark.parametrize(
    ("text", "finish", "missing"),
    [
        ("", "stop", Missing.EMPTY),
        ("   ", "stop", Missing.EMPTY),
        ("", "length", Missing.TRUNCATED),
        ("Let me think", "stop", Missing.UNPARSED),
        ("Let me think", "length", Missing.TRUNCATED),
    ],
)
def test_what_is_not_answered_is_not_wrong(text: str, finish: str, missing: Missing) -> None:
    found = mark(scorer("numeric", target="1"), text, finish=finish)
    assert (found.score, found.missing) == (None, missing)


def test_a_failed_request_is_not_wrong_under_any_scorer(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def score(fields, answer):\n    return 1\n")
    own = [
        scorer("exact", target="a"),
        scorer("choice", gold="0"),
        scorer("json", target="{}"),
        scorer("tool_call", target="[]"),
        scorer("rouge", target="a"),
        scorer("bleu", target="a"),
        scorer("judge", prompt="?"),
        scorer("python", file=tmp_path / "own.py"),
    ]
    failed = Answer(error="server_error: no")
    marks = [one for each in own for one in each.score({}, failed).values()]
    assert {one.missing for one in marks} == {Missing.REQUEST_FAILED}


def json_marks(text: str, finish: str = "stop") -> list[float | Missing | None]:
    schema = {"type": "object", "required": ["a"], "properties": {"b": {"type": "integer"}}}
    of = scorer("json", target="{'a': 'X', 'b': 1}", schema=schema)
    marks = of.score({}, Answer(text=text, finish_reason=finish))
    return [one.score if one.missing is None else one.missing for one in marks.values()]


@pytest.mark.parametrize(
    ("text", "fields", "exact", "valid"),
    [
        ('{"a": " x ", "b": 1}', 1.0, 1.0, 1.0),
        ('```json\n{"a": "x", "b": 2}\n```', 0.5, 0.0, 1.0),
        ('{"a": "x", "b": true}', 0.5, 0.0, 0.0),
        ('{"b": 1}', 0.5, 0.0, 0.0),
        ("[]", 0.0, 0.0, 0.0),
    ],
)
def test_json_is_right_field_by_field_and_fits_its_schema(
    text: str, fields: float, exact: float, valid: float
) -> None:
    assert json_marks(text) == [fields, exact, valid]


def test_json_that_is_none_is_unparsed_and_not_valid() -> None:
    assert json_marks("Sure! Here it is") == [Missing.UNPARSED, Missing.UNPARSED, 0.0]
    assert json_marks('{"a": NaN}') == [Missing.UNPARSED, Missing.UNPARSED, 0.0]
    assert json_marks('{"a": ', "length") == [Missing.TRUNCATED] * 3


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("calls", "score"),
    [
        ([call("add", '{"a": 1, "b": 2}')], 1.0),
        ([call("add", '{"b": 2, "a": 1}')], 1.0),
        ([call("add", '{"a": 1, "b": "2"}')], 0.0),
        ([call("add", '{"a": true, "b": 2}')], 0.0),
        ([call("add", '{"a": 1, "b": 2, "c": 3}')], 0.0),
        ([call("add", '{"a": 1, "b": 2}')] * 2, 0.0),
        ([], 0.0),
    ],
)
def test_a_tool_call_must_be_the_wanted_one(calls: list[dict[str, Any]], score: float) -> None:
    of = scorer("tool_call", target="[{'name': 'add', 'arguments': {'a': 1, 'b': 2}}]")
    found = of.score({}, Answer(text="Well,", tool_calls=calls))
    assert found["tool_call"].score == score


def test_a_tool_call_that_is_no_json_is_unparsed() -> None:
    of = scorer("tool_call", target="{'name': 'add', 'arguments': {}}")
    found = of.score({}, Answer(tool_calls=[call("add", "{")], finish_reason="stop"))
    assert found["tool_call"].missing == Missing.UNPARSED


def test_no_tool_call_is_right_where_none_is_wanted() -> None:
    found = scorer("tool_call", target="[]").score({}, Answer(text="I cannot."))
    assert found["tool_call"].score == 1


def test_overlap_is_told_by_the_usual_libraries() -> None:
    text = "the cat sat on the mat"
    assert mark(scorer("rouge", target=text), text).score == pytest.approx(1)
    assert mark(scorer("bleu", target=text), text).score == pytest.approx(1)
    # rouge-1 of 3 shared words out of 4 and 6.
    found = mark(scorer("rouge", variant="rouge1", target=text), "the cat sat down").score
    assert found == pytest.approx(2 * (3 / 4) * (3 / 6) / (3 / 4 + 3 / 6))


def judged(said: str, **settings: Any) -> Mark:
    judge: Any = scorer("judge", prompt="Grade {{ answer_text }}.", **settings)
    return judge.grade(Answer(text="Paris"), Answer(text=said))["judge"]


@pytest.mark.parametrize(
    ("said", "score"), [("GRADE: C", 1.0), ("grade: I", 0.0), ("Grade: i … no, GRADE: P", 0.5)]
)
def test_a_judge_gives_one_of_its_grades(said: str, score: float) -> None:
    assert judged(said).score == score


@pytest.mark.parametrize("said", ["", "I like it.", "GRADE: Z"])
def test_a_judge_that_gives_no_grade_has_failed(said: str) -> None:
    found = judged(said)
    assert (found.score, found.missing) == (None, Missing.JUDGE_FAILED)


def test_a_judge_may_grade_by_number() -> None:
    found = judged("Rating: [[8]]", pattern=r"\[\[(\d+)\]\]", grades={"8": 0.8})
    assert found.score == 0.8


def test_a_scorer_of_ones_own_gives_a_score_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "def even(fields, answer):\n    return answer.isdigit() and int(answer) % 2 == 0\n"
    )
    own = scorer("python", file=path, function="even")
    assert [mark(own, text).score for text in ("4", "3")] == [1, 0]
    before = own.signature()
    path.write_text("def even(fields, answer):\n    return answer.isdigit()\n")
    assert [mark(own, text).score for text in ("4", "3")] == [1, 1]
    assert own.signature() != before


def likelihoods(*sums: float) -> Answer:
    """A context of two tokens, and continuations of one more."""
    context = {"tokens": ["a", "b"], "token_logprobs": [None, -1.0]}
    choices = [context] + [
        {"tokens": ["a", "b", "c"], "token_logprobs": [None, -1.0, value]} for value in sums
    ]
    body = {"choices": [{"logprobs": one, "finish_reason": "length"} for one in choices]}
    return read_answer({"response": {"status_code": 200, "body": body}})


def test_choice_counts_characters_and_bytes_as_lm_evaluation_harness_does() -> None:
    choices = ["Lima", "the city of Lyon", "東京"]
    of = scorer("choice", gold="2")
    marks = of.score({"_choices": choices}, likelihoods(-4.0, -20.0, -5.4))
    assert [marks[name].score for name in ("acc", "acc_norm", "acc_bytes")] == [0, 0, 1]
    assert marks["margin"].score == pytest.approx(-1.4)


@pytest.mark.parametrize("gold", ["1", "'B'", "'no'", "index"])
def test_gold_is_an_index_a_letter_or_the_choice_itself(gold: str) -> None:
    fields = {"_choices": ["yes", "no"], "index": "1"}
    marks = scorer("choice", gold=gold).score(fields, likelihoods(-3.0, -2.0))
    assert marks["acc"].score == 1


def test_of_equal_choices_the_first_is_taken() -> None:
    marks = scorer("choice", gold="0").score({"_choices": ["a", "b"]}, likelihoods(-2.0, -2.0))
    assert (marks["acc"].score, marks["margin"].score) == (1, 0)
