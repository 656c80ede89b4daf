"""Answers as people read them: what was asked, what was answered, and what was made of it."""

from __future__ import annotations

from batchjobs.evals.history import AnswerRecord
from batchjobs.evals.tally import shown_score


def question_of(record: AnswerRecord) -> str:
    """The last thing that was asked: examples and instructions go before it."""
    if isinstance(record.prompt, str):
        return record.prompt.strip().rpartition("\n\n")[2]
    return str(record.prompt[-1]["content"]).strip()


def answer_of(record: AnswerRecord, metric: str) -> str:
    """What was answered, or what kept it from being."""
    said = record.error or record.text.strip()
    if not said:
        calls = record.record.get("tool_calls") or ()
        said = ", ".join(
            f"{call['function']['name']}({call['function']['arguments']})" for call in calls
        )
    return said or str(record.marks[metric]["extracted"] or "(nothing)")


def outcome_of(record: AnswerRecord, metric: str) -> str:
    """The score, or why there is none, with what was taken for the answer if that is less than all
    of it."""
    mark = record.marks[metric]
    if mark["missing"] is not None:
        return str(mark["missing"]).replace("_", " ")
    extracted = mark["extracted"]
    if extracted in (None, record.text.strip()) or not record.text:
        return f"score {shown_score(mark['score'])}"
    return f"score {shown_score(mark['score'])}, extracted {extracted!r}"
