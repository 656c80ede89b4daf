"""A report as Markdown, for a comment on a change or a chat."""

from __future__ import annotations

from collections.abc import Iterator

from batchjobs.evals.p_values import shown_p
from batchjobs.evals.reporting.content import Content, FlipTexts
from batchjobs.evals.tally import missing_words, shown_score
from batchjobs.evals.texts import answer_of, outcome_of, question_of

SHOWN_FLIPS = 20
TEXT_CHARS = 500


def markdown_report(content: Content) -> str:
    return "\n".join(_lines(content)) + "\n"


def _lines(content: Content) -> Iterator[str]:
    run = content.run
    yield f"# {cell(run.suite)} on {cell(run.model)}: {content.word}"
    yield ""
    if run.verdict:
        yield cell(run.verdict["sentence"])
        yield ""
    yield "| metric | score | 95 % | scored | not answered |"
    yield "|---|---|---|---|---|"
    for metric, found in (run.scores or {}).items():
        interval = found.get("interval")
        shown = "" if not interval else f"{shown_score(interval[0])} to {shown_score(interval[1])}"
        missing = missing_words(found["missing"]) or "–"
        yield (
            f"| {cell(metric)} | {shown_score(found['mean'])} | {shown} | {found['scored']:,}"
            f" | {missing} |"
        )
    yield from _rows(content)
    if content.baseline:
        yield ""
        yield f"## Items that differ from the baseline: {len(content.flips):,}"
        for one in content.texts[:SHOWN_FLIPS]:
            yield from _flip(one, run.metric)
    yield ""
    yield f"Run `{run.id}`."


def _rows(content: Content) -> Iterator[str]:
    if not content.rows:
        return
    yield ""
    yield "| tag | baseline | now | change | p (Holm) | broken | fixed | items |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in content.rows:
        yield (
            f"| {cell(row['tag'] or 'all')} | {shown_score(row['baseline'])}"
            f" | {shown_score(row['score'])} | {row['effect']:+.4f}"
            f" | {cell(shown_p(row['adjusted_worse']))}"
            f" | {row['broken']} | {row['fixed']} | {row['items']} |"
        )


def _flip(one: FlipTexts, metric: str) -> Iterator[str]:
    flip = one.flip
    yield ""
    yield (
        f"**{flip.way}** {cell(flip.item)}: {shown_score(flip.before)} → {shown_score(flip.after)}"
        + (f" ({cell(', '.join(flip.tags))})" if flip.tags else "")
    )
    yield ""
    yield f"> {cell(question_of(one.after[0]))}"
    yield ""
    for name, records in (("baseline", one.before), ("this run", one.after)):
        for record in records:
            said, outcome = cell(answer_of(record, metric)), cell(outcome_of(record, metric))
            yield f"- {name}: {said} — {outcome}"


def cell(text: str) -> str:
    """One line that no Markdown reader takes for more than words."""
    line = " ".join(text.split())
    line = line if len(line) <= TEXT_CHARS else line[: TEXT_CHARS - 1] + "…"
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|!" else letter for letter in line)
