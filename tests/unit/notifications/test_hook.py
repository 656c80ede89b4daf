from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from batchjobs.notifications.backoff import DeliveryError
from batchjobs.notifications.hook import CommandHook
from batchjobs.settings import Settings
from tests.unit.notifications.test_mail import parcel

SCRIPT = """
import json, os, sys
event = json.load(sys.stdin)
event["environment"] = {k: v for k, v in os.environ.items() if k.startswith("BATCHJOBS_")}
json.dump(event, open(sys.argv[1], "w"))
"""


def hook(*command: str) -> CommandHook:
    return CommandHook(Settings.load(notify_command=shlex.join(command)))


def test_command_gets_the_event_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHJOBS_DATABASE_URL", "postgresql://u:word@db/b")
    monkeypatch.setenv("BATCHJOBS_HOME", str(tmp_path))
    told = tmp_path / "a file"
    hook(sys.executable, "-c", SCRIPT, str(told)).send(parcel())
    event = json.loads(told.read_text())
    assert (event["type"], event["data"]["suite"]) == ("eval.run.regressed", "arith")
    assert event["environment"] == {
        "BATCHJOBS_HOME": str(tmp_path),
        "BATCHJOBS_CONFIG": "",
        "BATCHJOBS_EVENT_ID": "evt_1",
        "BATCHJOBS_EVENT_TYPE": "eval.run.regressed",
        "BATCHJOBS_EVENT_SUBJECT": "[batchjobs] arith is worse than its baseline (nightly).",
    } | {k: v for k, v in event["environment"].items() if k.startswith("BATCHJOBS_TEST_")}


def test_words_of_an_event_reach_no_shell(tmp_path: Path) -> None:
    evil = replace(parcel(suite=f"$(touch {tmp_path}/pwned)"))
    hook(sys.executable, "-c", "").send(evil)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((sys.executable, "-c", "raise SystemExit(3)"), "the command ended with 3"),
        (("/nonexistent/command",), "cannot be run (No such file or directory)"),
    ],
)
def test_command_that_fails_is_a_failed_attempt(command: tuple[str, ...], said: str) -> None:
    with pytest.raises(DeliveryError) as failed:
        hook(*command).send(parcel())
    assert said in str(failed.value)
