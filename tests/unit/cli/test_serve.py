from __future__ import annotations

from pathlib import Path

from batchjobs.cli.exits import Exit
from tests.support.cli import run


def test_open_address_is_refused_in_one_sentence(home: Path) -> None:
    refused = run("serve", "--host", "0.0.0.0")
    assert (refused.exit_code, refused.stdout) == (Exit.USAGE, "")
    assert refused.stderr.startswith("Error: There are no API keys yet")
    assert "--insecure-open" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_unknown_host_is_one_sentence(home: Path) -> None:
    refused = run("serve", "--host", "nowhere.invalid", "--insecure-open")
    assert refused.exit_code == Exit.ERROR
    assert refused.stderr.startswith("Error: ")
    assert refused.stderr.count("\n") == 1
