"""What the documents say is what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from batchjobs.cli import cli
from batchjobs.cli.exits import Exit
from batchjobs.settings import ENV_PREFIX, Settings

ROOT = Path(__file__).parents[2]


def table_rows(document: str) -> list[list[str]]:
    rows = [line.strip("| ") for line in (ROOT / document).read_text().splitlines()]
    return [[cell.strip(" `") for cell in row.split(" | ")] for row in rows if " | " in row]


def default_in_words(value: object) -> str:
    if value is None:
        return "–"
    return json.dumps(value) if isinstance(value, bool) else str(value)


def test_settings_and_their_defaults_are_documented() -> None:
    documented = {
        row[0]: row[1] for row in table_rows("docs/settings.md") if row[0].startswith(ENV_PREFIX)
    }
    expected = {
        f"{ENV_PREFIX}{name.upper()}": default_in_words(field.default)
        for name, field in Settings.model_fields.items()
        if name != "home"
    }
    expected[f"{ENV_PREFIX}HOME"] = "the platform's user data directory"
    assert documented == expected


def test_exit_codes_are_documented() -> None:
    documented = {row[0]: row[1] for row in table_rows("docs/cli.md") if row[0].isdigit()}
    assert documented == {str(int(code)): code.name for code in Exit}


def test_commands_are_documented() -> None:
    documented = {row[0].split()[0] for row in table_rows("docs/cli.md")}
    assert set(cli.commands) <= documented


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/bench.md",
        "docs/cli.md",
        "docs/deploy.md",
        "docs/page.md",
        "docs/performance.md",
        "tests/clients/README.md",
    ],
)
def test_files_that_a_document_links_to_exist(document: str) -> None:
    path = ROOT / document
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
    missing = [link for link in links if not (path.parent / link).exists()]
    assert missing == []


def test_readme_opens_with_the_two_commands() -> None:
    head = (ROOT / "README.md").read_text()[:900]
    assert head.index("scripts/quickstart") < head.index("scripts/test")
