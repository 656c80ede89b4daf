"""The suites in examples/evals."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchjobs.evals.material import gather
from batchjobs.evals.suite_file import read_suite
from batchjobs.settings import Settings
from batchjobs.worker.default_model import NAME

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "evals").glob("*.yaml"))


def test_there_are_three_examples() -> None:
    assert [path.stem for path in EXAMPLES] == ["arithmetic", "choice", "extraction"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_renders_and_its_targets_are_right(path: Path) -> None:
    file = read_suite(path)
    assert file.suite.models == (NAME,)
    with gather(file, Settings.load()) as material:
        assert material.sha256 == file.suite.dataset.sha256
        lines = list(material.lines(NAME))
    for line in lines:
        for scorer in file.suite.scorers:
            scorer.check(line.fields)
    assert len({line.item.id for line in lines}) == len(lines) >= 50
