"""The tables. Facts live here; bytes live in the object store under the keys named here."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Enum,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from batchjobs.states import JobState, ShardState

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

ANY_LINE = 2**31 - 1
DEFAULT_TENANT = "default"
"""Whose everything is that nobody with a key has asked for."""

# SQLite numbers rows only in a column of exactly INTEGER.
RowId = BigInteger().with_variant(Integer, "sqlite")


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC datetime, also on SQLite, which stores no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class UserText(TypeDecorator[str]):
    """A user's words: what a database cannot hold (NUL, lone surrogates) is replaced."""

    impl: type[String] = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        return value.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


class UserWord(UserText):
    """The same, cut to a length; also for ids, which a user may misspell in any way."""

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        storable = super().process_bind_param(value, dialect)
        return None if storable is None else storable[: self.length]


def column_of(states: type[StrEnum]) -> Enum:
    """A column of text that reads back as a member of `states`."""
    return Enum(
        states,
        native_enum=False,
        length=16,
        values_callable=lambda members: [member.value for member in members],
    )


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012
        datetime: UtcDateTime,
        dict[str, Any]: JSON,
        dict[str, str]: JSON,
        list[str]: JSON(none_as_null=True),
        JobState: column_of(JobState),
        ShardState: column_of(ShardState),
    }


class File(Base):
    """An uploaded or produced JSONL object. `filename` is the user's word, never a path of ours."""

    __tablename__ = "files"
    __table_args__ = (Index(None, "tenant", "created_at", "id"),)

    id: Mapped[str] = mapped_column(UserWord(64), primary_key=True)
    purpose: Mapped[str] = mapped_column(String(32))
    filename: Mapped[str] = mapped_column(Text)
    bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(String(64))
    key: Mapped[str] = mapped_column(String(255))
    tenant: Mapped[str] = mapped_column(UserWord(64), server_default=DEFAULT_TENANT)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]


class Job(Base):
    """One batch. `status` moves only in `queue.jobs`, as `states.JOB_NEXT` allows."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index(None, "status", "expires_at"),
        Index(None, "created_at", "id"),
        Index(None, "tenant", "created_at", "id"),
        Index(None, "tenant", "request_key", unique=True),
    )

    id: Mapped[str] = mapped_column(UserWord(64), primary_key=True)
    status: Mapped[JobState]
    ending: Mapped[JobState | None]
    """The terminal state a finalizing job is on its way to."""
    endpoint: Mapped[str] = mapped_column(UserWord(64))
    completion_window: Mapped[str] = mapped_column(String(16))
    input_file_id: Mapped[str] = mapped_column(UserWord(64))
    output_file_id: Mapped[str | None] = mapped_column(String(64))
    error_file_id: Mapped[str | None] = mapped_column(String(64))
    job_metadata: Mapped[dict[str, str] | None] = mapped_column("metadata", JSON)
    model_override: Mapped[str | None] = mapped_column(UserText)
    """Takes the place of every line's model."""
    models: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    """Frozen at intake: model name on the lines → name in the catalogue."""
    seed: Mapped[int] = mapped_column(BigInteger, default=0)
    """Base of the seeds of lines that name none."""
    output_expires_seconds: Mapped[int | None]
    """How long the result files stay once they are made."""
    request_key: Mapped[str | None] = mapped_column(String(64))
    """Digest of the key that names the create request, and of what it asked for: the same request
    sent again makes no second job."""
    request_digest: Mapped[str | None] = mapped_column(String(64))
    tenant: Mapped[str] = mapped_column(UserWord(64), server_default=DEFAULT_TENANT)

    plan_key: Mapped[str | None] = mapped_column(String(255))
    """The object of the lines that run in another order than the file's, if any do."""
    priority: Mapped[int] = mapped_column(default=0, server_default="0")
    """Of jobs whose windows close in the same hour, the greater goes first."""
    due_hour: Mapped[int] = mapped_column(server_default="0")
    """`expires_at` in whole hours since the epoch."""

    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    in_progress_at: Mapped[datetime | None]
    finalizing_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    failed_at: Mapped[datetime | None]
    expired_at: Mapped[datetime | None]
    cancelling_at: Mapped[datetime | None]
    cancelled_at: Mapped[datetime | None]

    total_lines: Mapped[int] = mapped_column(Integer, default=0)
    total_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    """Bytes of all request lines: what progress in tokens is estimated from."""
    completed_lines: Mapped[int | None]
    """This and the next four are set when the job is published; before, parts are summed."""
    failed_lines: Mapped[int | None]
    prompt_tokens: Mapped[int | None] = mapped_column(BigInteger)
    cached_tokens: Mapped[int | None] = mapped_column(BigInteger)
    completion_tokens: Mapped[int | None] = mapped_column(BigInteger)
    reasoning_tokens: Mapped[int | None] = mapped_column(BigInteger)
    system_fingerprints: Mapped[list[str] | None]
    """Of all engines that computed results, set when the job is published; None where none did,
    or a version that did not note it."""


class JobError(Base):
    """One bad line found at intake (or, without `line`, a fault of the whole file)."""

    __tablename__ = "job_errors"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    line: Mapped[int | None]
    code: Mapped[str] = mapped_column(String(64))
    message: Mapped[str] = mapped_column(UserText)
    param: Mapped[str | None] = mapped_column(UserText)


class Shard(Base):
    """A bounded set of lines of one job and one model: those of `model` between two byte offsets
    of the input, or if `is_planned` of the job's `plan_key`.

    | column | invariant |
    |---|---|
    | fence | grows by one at every claim and every revocation; a write under a lesser one is void |
    | owner, lease_until | set exactly while `state` is running |
    | attempt | claims since the last committed part |
    | suspect_first, suspect_last | lines that ran apart when the last worker died, or none |
    """

    __tablename__ = "shards"
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        Index(None, "state", "model"),
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    number: Mapped[int]
    model: Mapped[str] = mapped_column(Text)
    """Name in the catalogue."""
    first_line: Mapped[int]
    last_line: Mapped[int] = mapped_column(server_default=str(ANY_LINE))
    """The greatest line number; of a shard that an older version cut, more."""
    line_count: Mapped[int]
    byte_start: Mapped[int] = mapped_column(BigInteger)
    """Offset of the first line's first byte."""
    byte_end: Mapped[int] = mapped_column(BigInteger)
    """Offset behind the last line's line feed."""
    is_planned: Mapped[bool] = mapped_column(default=False, server_default=false())
    leads: Mapped[bool] = mapped_column(default=False, server_default=false())
    """The first of its job for its model: a new job's first results come soon."""
    state: Mapped[ShardState] = mapped_column(default=ShardState.QUEUED)
    attempt: Mapped[int] = mapped_column(default=0)
    fence: Mapped[int] = mapped_column(BigInteger, default=0)
    owner: Mapped[str | None] = mapped_column(String(64))
    lease_until: Mapped[datetime | None]
    suspect_first: Mapped[int | None]
    suspect_last: Mapped[int | None]


class Part(Base):
    """Results of some lines of a shard. The row is the commit: an object without one is garbage."""

    __tablename__ = "parts"
    __table_args__ = (
        UniqueConstraint("shard_id", "fence", "number"),
        Index(None, "job_id"),
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    shard_id: Mapped[int] = mapped_column(ForeignKey("shards.id"))
    fence: Mapped[int] = mapped_column(BigInteger)
    number: Mapped[int]
    key: Mapped[str] = mapped_column(String(255))
    sha256: Mapped[str] = mapped_column(String(64))
    completed_lines: Mapped[int]
    failed_lines: Mapped[int]
    input_bytes: Mapped[int] = mapped_column(BigInteger)
    """Bytes of the request lines answered here."""
    prompt_tokens: Mapped[int] = mapped_column(BigInteger)
    cached_tokens: Mapped[int] = mapped_column(BigInteger)
    completion_tokens: Mapped[int] = mapped_column(BigInteger)
    reasoning_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """Of `completion_tokens`."""


class Model(Base):
    """The catalogue: a name that a line may ask for, and where the weights are."""

    __tablename__ = "models"

    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    source: Mapped[str] = mapped_column(Text)
    """An absolute folder, or a Hugging Face id."""
    revision: Mapped[str | None] = mapped_column(String(64))
    """Commit of a hub id, or a digest of a local folder's weights."""
    created_at: Mapped[datetime]
    max_model_len: Mapped[int | None]
    """Shorter than the model's own, in tokens."""
    chat_template: Mapped[str | None] = mapped_column(UserText)
    """In the place of the model's own."""
    sampling: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Parameter → what it is on lines that leave it out."""


class ModelAlias(Base):
    """Another provider's name for a model of the catalogue."""

    __tablename__ = "model_aliases"

    alias: Mapped[str] = mapped_column(String(255), primary_key=True)
    model: Mapped[str] = mapped_column(ForeignKey("models.name"), index=True)


class Worker(Base):
    """A process that looks for work, as it last said of itself. It decides nothing: leases do."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    """Also the owner of the shards that it holds."""
    host: Mapped[str] = mapped_column(UserWord(255))
    pid: Mapped[int]
    models: Mapped[list[str] | None]
    """Names of the catalogue that it serves; without, any."""
    job_id: Mapped[str | None] = mapped_column(String(64))
    """It works on this job only."""
    loaded_model: Mapped[str | None] = mapped_column(Text)
    tokens_per_second: Mapped[float | None]
    """Prompt and generated tokens that it computed of the loaded model while it last worked."""
    running: Mapped[int] = mapped_column(default=0)
    """Sequences in the last step."""
    waiting: Mapped[int] = mapped_column(default=0)
    kv_cache_usage: Mapped[float] = mapped_column(default=0.0, server_default="0")
    """Share of the KV cache in use, 0 to 1."""
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]


class Sample(Base):
    """How many tokens a worker computed of a model within a minute. Kept for an hour."""

    __tablename__ = "samples"

    minute: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Since the epoch, in whole minutes."""
    worker_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    model: Mapped[str] = mapped_column(String(255), primary_key=True)
    tokens: Mapped[int] = mapped_column(BigInteger)


class ApiKey(Base):
    """Who may act as `tenant`. The secret itself is nowhere, only its digest."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(UserWord(64), primary_key=True)
    tenant: Mapped[str] = mapped_column(UserWord(64))
    name: Mapped[str] = mapped_column(UserWord(64))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    hint: Mapped[str] = mapped_column(String(16))
    """The secret's first and last characters, for a person to tell it by."""
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    """Coarse: a use is noted at most once an hour."""


class SignIn(Base):
    """A browser that the holder of an API key has let in. Its secret is nowhere, only a digest."""

    __tablename__ = "sign_ins"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    expires_at: Mapped[datetime] = mapped_column(index=True)
