from __future__ import annotations

import logging
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from batchjobs.errors import UsageError
from batchjobs.settings import Settings


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file that the environment names, which is not there yet."""
    path = tmp_path / "settings.toml"
    monkeypatch.setenv("BATCHJOBS_CONFIG", str(path))
    return path


def complaint(**overrides: object) -> str:
    with pytest.raises(UsageError) as refused:
        Settings.load(**overrides)
    return refused.value.message


def test_environment_goes_before_the_file_and_the_file_before_defaults(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('lease_seconds = 7\npoll_seconds = 7\ndevice = "cpu"\nlog_format = "json"\n')
    monkeypatch.setenv("BATCHJOBS_POLL_SECONDS", "8")
    found = Settings.load(log_format="text")
    assert (found.lease_seconds, found.poll_seconds, found.device) == (7, 8, "cpu")
    assert found.log_format == "text"
    assert found.stop_grace_seconds == Settings.model_fields["stop_grace_seconds"].default


def test_file_of_the_user_is_read_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BATCHJOBS_CONFIG")
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / name))
    assert Settings.load().max_num_seqs is None
    (tmp_path / "batchjobs").mkdir()
    (tmp_path / "batchjobs" / "batchjobs.toml").write_text("max_num_seqs = 3")
    assert Settings.load().max_num_seqs == 3
    monkeypatch.setenv("BATCHJOBS_CONFIG", "")
    assert Settings.load().max_num_seqs is None


def test_unknown_key_is_named_with_the_file_and_what_was_meant(file: Path) -> None:
    file.write_text("pol_seconds = 1")
    said = complaint()
    assert f"{file} has an unknown key 'pol_seconds'" in said
    assert "Did you mean 'poll_seconds'?" in said
    file.write_text("xyzzy = 1")
    assert "Did you mean" not in complaint()


def test_wrong_value_in_the_file_is_named_with_the_file_and_the_key(file: Path) -> None:
    file.write_text("poll_seconds = -1")
    assert complaint().startswith(f"'poll_seconds' in {file} is not usable: ")


def test_wrong_value_of_a_variable_is_named_with_the_variable(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("poll_seconds = 1")
    monkeypatch.setenv("BATCHJOBS_POLL_SECONDS", "soon")
    said = complaint()
    assert said.startswith("BATCHJOBS_POLL_SECONDS is not usable: ")
    assert "'soon'" in said
    assert complaint(lease_seconds=0).startswith("BATCHJOBS_")


def test_wrong_secret_is_not_shown(file: Path) -> None:
    file.write_text('database_url = ["postgresql://u:hush-hush@h/d"]')
    said = complaint()
    assert said.startswith(f"'database_url' in {file} is not usable")
    assert "hush" not in said


@pytest.mark.parametrize("content", ["poll_seconds = ", b"\xff"])
def test_file_that_is_not_toml_is_refused(file: Path, content: str | bytes) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert complaint().startswith(f"The settings file {file} is not TOML: ")


def test_file_that_is_asked_for_must_be_there(file: Path) -> None:
    said = complaint()
    assert f"{file} cannot be read" in said
    assert "BATCHJOBS_CONFIG" in said


@pytest.mark.parametrize(
    ("content", "mode", "warns"),
    [
        ('broker_url = "redis://:hush-hush@h"', 0o644, True),
        ('broker_url = "redis://:hush-hush@h"', 0o600, False),
        ("poll_seconds = 1", 0o644, False),
    ],
)
def test_secret_in_a_file_that_others_can_read_is_warned_of(
    file: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    content: str,
    mode: int,
    warns: bool,
) -> None:
    file.write_text(content)
    file.chmod(mode)
    with caplog.at_level(logging.WARNING), Deployment.open(Settings.load(home=tmp_path)):
        pass
    warning = f"Others can read broker_url in {file}; make it private: chmod 600 {file}"
    assert [record.message for record in caplog.records] == [warning] * warns
    assert "hush" not in caplog.text


def test_secrets_are_in_no_repr() -> None:
    settings = Settings.load(database_url="postgresql://u:hush-hush@h/d")
    assert "hush" not in f"{settings!r} {settings}"
    assert set(Settings.secrets()) == {
        "api_key",
        "broker_url",
        "database_url",
        "metrics_token",
        "smtp_url",
        "webhook_secret",
    }
