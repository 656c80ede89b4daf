"""Every setting, read once from the environment (`BATCHJOBS_…`) or a TOML file, and frozen."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

import platformdirs
from pydantic import BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from batchjobs.client.address import ApiKey, ServerUrl
from batchjobs.config_file import ConfigFile
from batchjobs.errors import UsageError
from batchjobs.notifications.address import SmtpUrl, WebhookSecret, WebhookUrl

ENV_PREFIX = "BATCHJOBS_"


def _read_json(value: object) -> object:
    """The environment has an object as text, the file as a table."""
    return json.loads(value) if isinstance(value, str) else value


class Settings(BaseSettings):
    """Units are in the names; None lets the machine or the model decide."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="ignore")

    home: Path = Field(default_factory=lambda: Path(platformdirs.user_data_dir("batchjobs")))
    """Where the embedded database, object store and models live."""
    database_url: SecretStr | None = None
    """PostgreSQL, with its password; None is SQLite in `home`."""
    broker_url: SecretStr | None = None
    """Celery's, with its password; None lets workers find out by themselves."""
    metrics_token: SecretStr | None = None
    """Opens `/metrics`; None leaves them open where the API needs no keys."""
    allowed_hosts: str = ""
    """Names apart by commas that a server without keys may be asked by, besides its own."""
    debug: bool = False
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """Where a worker tells its figures; None tells none."""

    webhook_url: WebhookUrl | None = None
    """Where events are sent, signed with `webhook_secret`; None sends none."""
    webhook_secret: WebhookSecret | None = None
    webhook_events: str = "*"
    """Which ones: patterns apart by commas. So for the other channels."""
    smtp_url: SmtpUrl | None = None
    """The mail server, with its password; None sends no mail."""
    mail_from: str = "batchjobs@localhost"
    mail_to: str = ""
    """Addresses apart by commas."""
    mail_events: str = "eval.run.*,schedule.*"
    notify_command: str | None = None
    """Gets events on its standard input; None runs nothing."""
    command_events: str = "eval.run.*,schedule.*"

    url: ServerUrl | None = None
    """A server that commands talk to; None lets them work on the data here."""
    api_key: ApiKey | None = None
    """For that server."""

    store_url: str | None = None
    """`s3://bucket/prefix`; None keeps objects in `store_dir`."""
    s3_endpoint_url: str | None = None
    s3_region: str | None = None
    s3_checksums: Literal["when_required", "when_supported"] = "when_required"

    max_requests_per_batch: int = Field(default=50_000, ge=1)
    max_input_bytes: int = Field(default=200_000_000, ge=1)
    max_line_bytes: int = Field(default=8 << 20, ge=1024)
    max_listed_errors: int = Field(default=50_000, ge=1)
    max_custom_id_chars: int = Field(default=512, ge=1)
    allow_mixed_models: bool = True
    """False restores the public API's rule of one model a file (`mismatched_model`)."""
    ignore_unknown: bool = False
    """True lets lines run whose bodies have parameters that nobody knows; False fails them."""
    max_completion_window_hours: int = Field(default=24 * 30, ge=24)

    shard_max_lines: int = Field(default=512, ge=1)
    shard_max_bytes: int = Field(default=8 << 20, ge=1024)
    lease_seconds: float = Field(default=60, gt=0)
    poll_seconds: float = Field(default=1, gt=0)
    """How often a worker looks for a cancel, an expiry or its stop signal's effect."""
    model_switch_seconds: float = Field(default=300, ge=0)
    """How long a worker stays with a model while lines of another are more urgent."""
    checkpoint_seconds: float = Field(default=5, gt=0)
    stop_grace_seconds: float = Field(default=8, gt=0)
    watchdog_seconds: float = Field(default=600, gt=0)
    """An engine that makes no step for so long is taken to hang, and its process ends."""

    device: str | None = None
    dtype: str | None = None
    quantization: Literal["int8"] | None = None
    """Compute with 8-bit weights, on CPU; None takes them as they are."""
    num_threads: int | None = Field(default=None, ge=1)
    max_num_seqs: int | None = Field(default=None, ge=1)
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    kv_cache_memory: int | None = Field(default=None, ge=1)
    """Bytes of KV cache."""
    max_model_len: int | None = Field(default=None, ge=2)
    block_size: int | None = Field(default=None, ge=1)
    enable_prefix_caching: bool = True
    scheduling_policy: Literal[
        "auto", "fcfs", "priority", "shortest_first", "longest_first", "prefix"
    ] = "auto"
    batching: Literal["continuous", "static"] = "continuous"
    request_timeout_seconds: float | None = Field(default=None, gt=0)
    """How long one request may run before it ends with an error."""
    num_speculative_tokens: int = Field(default=8, ge=0)
    """Guessed from the text so far and checked in one step; 0 guesses none."""
    prompt_lookup_min: int = Field(default=2, ge=1)
    prompt_lookup_max: int = Field(default=8, ge=1)
    reproducible: bool = False
    """Bytes of a result depend on its line alone, whatever runs beside it; slower."""
    generation_config: Literal["auto", "vllm"] = "auto"
    """"vllm" leaves out how a model says that it is sampled best."""
    override_generation_config: Annotated[
        dict[str, int | float], NoDecode, BeforeValidator(_read_json)
    ] = Field(default={})
    """Sampling parameters by name that go before the model's own."""

    @classmethod
    def load(cls, **overrides: object) -> Self:
        """From the environment and the TOML file, `overrides` first and the file last.

        Raises:
            UsageError: a value is wrong; names its variable, or the file and the key.
        """
        try:
            return cls(**overrides)  # type: ignore[arg-type]
        except ValidationError as wrong:
            # The cause may show a secret.
            raise UsageError(cls._complaint(wrong, overrides)) from None

    @classmethod
    def secrets(cls) -> tuple[str, ...]:
        """The settings whose values are for nobody's eyes."""
        fields = cls.model_fields.items()
        return tuple(name for name, field in fields if "SecretStr" in str(field.annotation))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        in_file = ConfigFile.find().read(known=cls.model_fields)
        return init_settings, env_settings, InitSettingsSource(settings_cls, in_file)

    @classmethod
    def _complaint(cls, wrong: ValidationError, overrides: Mapping[str, object]) -> str:
        first = wrong.errors()[0]
        if not first["loc"]:  # of several settings together; the words name them
            return f"{first['msg'].removeprefix('Value error, ')}."
        name = str(first["loc"][0])
        where = variable = f"{ENV_PREFIX}{name}".upper()
        is_set = name in overrides or variable in map(str.upper, os.environ)
        if not is_set and (file := ConfigFile.find()).exists:
            where = f"'{name}' in {file.path}"
        why = first["msg"].removeprefix("Value error, ")
        is_secret = name in cls.secrets() or "@" in str(first["input"])
        value = "" if is_secret else f" (it is {first['input']!r})"
        return f"{where} is not usable: {why}{value}."

    @property
    def allowed_host_names(self) -> tuple[str, ...]:
        return tuple(word.strip() for word in self.allowed_hosts.split(",") if word.strip())

    @property
    def mail_recipients(self) -> tuple[str, ...]:
        return tuple(word.strip() for word in self.mail_to.split(",") if word.strip())

    @model_validator(mode="after")
    def _channels_are_whole(self) -> Self:
        if self.webhook_url and not self.webhook_secret:
            raise ValueError(
                "BATCHJOBS_WEBHOOK_URL is not usable without BATCHJOBS_WEBHOOK_SECRET: make one"
                " with `batchjobs events secret`"
            )
        if self.smtp_url and not self.mail_recipients:
            raise ValueError("BATCHJOBS_SMTP_URL is not usable without BATCHJOBS_MAIL_TO")
        return self

    @property
    def database_address(self) -> str:
        """The URL of the database in use. May contain a password: not for people's eyes."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.home / 'batchjobs.sqlite3'}"

    @property
    def store_dir(self) -> Path:
        return self.home / "store"

    @property
    def models_dir(self) -> Path:
        return self.home / "models"

    @property
    def workers_dir(self) -> Path:
        return self.home / "workers"
