from __future__ import annotations

from pathlib import Path

import pytest

from batchjobs.cli.exits import Exit
from tests.support.cli import run


@pytest.mark.parametrize("command", ["serve", "up"])
def test_address_cannot_need_keys_and_be_open(home: Path, command: str) -> None:
    refused = run(command, "--require-keys", "--insecure-open")
    assert (refused.exit_code, refused.stdout) == (Exit.USAGE, "")
    assert refused.stderr.startswith("Error: --require-keys and --insecure-open")
    assert refused.stderr.count("\n") == 1


def test_unknown_host_is_one_sentence(home: Path) -> None:
    refused = run("serve", "--host", "nowhere.invalid", "--insecure-open")
    assert refused.exit_code == Exit.ERROR
    assert refused.stderr.startswith("Error: ")
    assert refused.stderr.count("\n") == 1
