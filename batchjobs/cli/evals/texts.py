"""Answers on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import click

from batchjobs.cli.render import plain
from batchjobs.evals.history import AnswerRecord, Flip
from batchjobs.evals.tally import shown_score
from batchjobs.evals.texts import answer_of, outcome_of, question_of

TEXT_CHARS = 400
OUTCOME_CHARS = 80


def print_answer(record: AnswerRecord, metric: str) -> None:
    sample = f" #{record.sample}" if record.sample else ""
    outcome = plain(outcome_of(record, metric), limit=OUTCOME_CHARS)
    click.echo(f"\n{plain(record.item)}{sample}: {outcome}")
    click.echo(f"  asked:    {plain(question_of(record), limit=TEXT_CHARS)}")
    click.echo(f"  answered: {plain(answer_of(record, metric), limit=TEXT_CHARS)}")


def print_flip(
    flip: Flip, before: Sequence[AnswerRecord], after: Sequence[AnswerRecord], metric: str
) -> None:
    tags = f"  ({', '.join(map(plain, flip.tags))})" if flip.tags else ""
    change = f"{shown_score(flip.before)} → {shown_score(flip.after)}"
    click.echo(f"\n{flip.way} {plain(flip.item)}: {change}{tags}")
    click.echo(f"  asked:  {plain(question_of(after[0]), limit=TEXT_CHARS)}")
    for name, records in (("before", before), ("after ", after)):
        for record in records:
            outcome = plain(outcome_of(record, metric), limit=OUTCOME_CHARS)
            answer = plain(answer_of(record, metric), limit=TEXT_CHARS)
            click.echo(f"  {name}: {answer}  [{outcome}]")
