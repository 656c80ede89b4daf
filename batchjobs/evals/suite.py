"""A suite: what is asked, of whom, how answers are scored, and when a run of it counts.

These classes are the schema of the file; `suite_file` reads it and says in which line it is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from batchjobs.evals.outcomes import Missing
from batchjobs.evals.scorers import AnyScorer
from batchjobs.evals.scorers.base import Expression, Part, Template
from batchjobs.evals.scorers.choice import Choice
from batchjobs.evals.scorers.judge import Judge
from batchjobs.evals.scorers.python import Python
from batchjobs.evals.templates import digest

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,63}$")]
Share = Annotated[float, Field(ge=0, le=1)]


def _check_source(source: str) -> str:
    """Raises ValueError for what has a scheme and is no URL that a dataset can be had from."""
    parts = urlsplit(source)
    is_whole = parts.netloc and (parts.scheme != "s3" or parts.path.strip("/"))
    if "://" in source and not (parts.scheme in ("http", "https", "s3") and is_whole):
        raise ValueError(
            f"{source!r} is neither a path nor `http(s)://HOST/…` nor `s3://BUCKET/KEY`"
        )
    return source


Source = Annotated[str, Field(min_length=1), AfterValidator(_check_source)]

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


class Dataset(Part):
    """Rows of a JSONL, CSV or parquet file; each is an item, its columns the fields."""

    source: Source
    """A path beside the suite, `http(s)://…` or `s3://bucket/key`."""
    format: Literal["jsonl", "csv", "parquet"] | None = None
    """By default by the ending of `source`."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """What the file must be; a run is refused with another."""
    id: str | None = None
    """The field that names an item; by default `id`, or else the row's number."""
    group: str | None = None
    """The field that items have in common which are not independent, as a passage."""
    tags: tuple[str, ...] = ()
    """Fields by whose values scores are told apart."""
    limit: int | None = Field(default=None, ge=1)
    """Only so many items, the first."""


class FewShot(Part):
    """Worked examples before each question: written here, or the first of a dataset."""

    items: tuple[Mapping[str, Any], ...] = ()
    source: Source | None = None
    format: Literal["jsonl", "csv", "parquet"] | None = None
    count: int | None = Field(default=None, ge=1)
    prompt: Template | None = None
    """By default the request's."""
    answer: Template
    separator: str = "\n\n"
    """Between examples in one text; a chat has them as turns."""

    @model_validator(mode="after")
    def _has_examples(self) -> Self:
        if bool(self.items) == (self.source is not None):
            raise ValueError("name the examples by either `items` or `source`")
        return self


class Sampling(Part):
    """As on the wire; what is not named is left to the server."""

    temperature: float = Field(default=0.0, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int = Field(default=256, ge=1)
    stop: tuple[str, ...] = ()
    seed: int | None = Field(default=None, ge=0)
    """Of the first sample of each item; the next has the next. Without one each run draws its own,
    so that several runs tell how much their scores vary by themselves."""


class Turn(Part):
    role: Literal["system", "developer", "user", "assistant"]
    content: Template


class Request(Part):
    """One request an item: a chat of `system`, examples and `prompt` (or `messages` in full), or
    one text."""

    endpoint: Literal["chat", "completions"] = "chat"
    system: Template | None = None
    prompt: Template | None = None
    messages: tuple[Turn, ...] = ()
    fewshot: FewShot | None = None
    choices: Expression | tuple[Template, ...] | None = None
    """The continuations whose likelihoods are compared: a list, or a field that has one."""
    delimiter: str = " "
    """Between prompt and choice."""
    sampling: Sampling = Sampling()
    body: Mapping[str, Any] = {}
    """Further parameters, as `response_format` or `tools`; string values are taken as they are."""
    truncated: Literal["missing", "score"] = "missing"
    """Whether an answer that ran into `max_tokens` is scored all the same."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.prompt is None) == (not self.messages):
            raise ValueError("say what to ask by either `prompt` or `messages`")
        if self.messages and (self.endpoint != "chat" or self.system or self.fewshot):
            raise ValueError("`messages` is the whole of a chat: put the rest into it")
        if self.choices is not None and self.endpoint != "completions":
            raise ValueError(
                "`choices` are compared by log-likelihood, which needs `endpoint: completions`"
            )
        if reserved := sorted({"model", "messages", "prompt", "stream", "n"} & set(self.body)):
            raise ValueError(f"`body` may not have `{reserved[0]}`")
        return self

    @property
    def url(self) -> str:
        return CHAT if self.endpoint == "chat" else COMPLETIONS

    @property
    def has_choices(self) -> bool:
        return self.choices is not None


class Limits(Part):
    """When a run has no verdict, and when a change is one. Shares are of answers."""

    min_answered: Share = 0.99
    """So many must have a score."""
    max_rates: Mapping[Missing, Share] = {}
    """The most of each kind of missing answer; 1 % of kinds that are not named."""
    rate_margin: Share = 0.01
    """So much more than the baseline's is allowed in any case."""
    margin: float = Field(default=0.0, ge=0)
    """A smaller change of the score is `ok`, however sure."""
    floor: float | None = None
    """A score whose whole interval lies below it is `worse`."""


class Suite(Part):
    suite: Name
    description: str = ""
    dataset: Dataset
    model: str | tuple[str, ...] | None = None
    request: Request
    scorers: tuple[AnyScorer, ...] = Field(min_length=1)
    metric: str | None = None
    """Which one decides; by default the first of the first scorer."""
    repeats: int = Field(default=1, ge=1, le=100)
    tags: tuple[Name, ...] = ()
    limits: Limits = Limits()
    confirm: bool = True
    """Before an alarm, run the whole suite once more."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = self.metrics
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"two scorers give the metric `{repeated[0]}`: give one of them a `name`"
            )
        if self.metric is not None and self.metric not in names:
            raise ValueError(f"`metric` is {self.metric!r}, but there are: {', '.join(names)}")
        if repeated := sorted({name for name in self.models if self.models.count(name) > 1}):
            raise ValueError(f"`model` has {repeated[0]!r} twice")
        by_likelihood = [isinstance(scorer, Choice) for scorer in self.scorers]
        if any(by_likelihood) != self.request.has_choices or len(set(by_likelihood)) > 1:
            raise ValueError(
                "the scorer `choice` goes with `choices` in `request`, and no other scorer does"
            )
        if self.request.has_choices and self.repeats > 1:
            raise ValueError("likelihoods are the same every time: `repeats` must be 1")
        return self

    @property
    def metrics(self) -> tuple[str, ...]:
        """Of all scorers, in order."""
        return tuple(metric for scorer in self.scorers for metric in scorer.metrics)

    @property
    def deciding(self) -> str:
        """The metric of the verdict."""
        return self.metric or self.metrics[0]

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,) if isinstance(self.model, str) else self.model or ()

    @property
    def judges(self) -> tuple[Judge, ...]:
        return tuple(scorer for scorer in self.scorers if isinstance(scorer, Judge))

    def template_digest(self) -> str:
        """Of what is asked, before an item is put in."""
        asked = self.request.model_dump(mode="json", exclude={"sampling", "truncated"})
        return digest({"choices": None, **asked})

    def sampling_digest(self) -> str:
        return digest(
            [self.request.sampling.model_dump(mode="json"), self.repeats, dict(self.request.body)]
        )

    def scorer_digest(self, metric: str) -> str:
        """Of what gives the metric its scores."""
        for scorer in self.scorers:
            if metric in scorer.metrics:
                return digest([scorer.signature(), metric, self.request.truncated])
        raise KeyError(metric)


def beside(suite: Suite, folder: Path) -> Suite:
    """The suite with its scorers' files where they are, whatever the working directory."""
    scorers = tuple(
        scorer.model_copy(update={"file": folder / scorer.file})
        if isinstance(scorer, Python)
        else scorer
        for scorer in suite.scorers
    )
    return suite.model_copy(update={"scorers": scorers})
