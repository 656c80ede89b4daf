"""The Dockerfile, without a Docker engine."""

from __future__ import annotations

import io
import json
import shlex
from fnmatch import fnmatch

import pytest
from dockerfile_parse import DockerfileParser

from tests.support.compose import ROOT

STAGES = 2


@pytest.fixture(scope="module")
def stages() -> list[list[tuple[str, str]]]:
    """Instructions and their values, stage by stage."""
    parser = DockerfileParser(fileobj=io.BytesIO((ROOT / "Dockerfile").read_bytes()))
    found: list[list[tuple[str, str]]] = []
    for each in parser.structure:
        if each["instruction"] == "FROM":
            found.append([])
        if each["instruction"] != "COMMENT":
            found[-1].append((each["instruction"], each["value"]))
    return found


def values(stage: list[tuple[str, str]], wanted: str) -> list[str]:
    return [value for instruction, value in stage if instruction == wanted]


def copies(stage: list[tuple[str, str]]) -> list[list[str]]:
    return [shlex.split(value) for value in values(stage, "COPY")]


def test_what_is_built_and_what_runs_are_two_stages(stages: list[list[tuple[str, str]]]) -> None:
    assert len(stages) == STAGES
    build, final = stages
    assert values(build, "FROM")[0].endswith(" AS build")
    assert all(copy[0] == "--from=build" for copy in copies(final))
    # Nothing is installed into what runs: it has the base image's tools, and no compiler.
    assert not any(word in run for run in values(final, "RUN") for word in ("apt", "pip"))


def test_base_images_are_one_and_pinned(stages: list[list[tuple[str, str]]]) -> None:
    images = {values(stage, "FROM")[0].split()[0] for stage in stages}
    [image] = images
    name, _, tag = image.partition(":")
    assert name == "python"
    assert tag.count(".") == 2


def test_it_runs_as_nobody_special(stages: list[list[tuple[str, str]]]) -> None:
    final = stages[-1]
    user = values(final, "USER")[-1].partition(":")[0]
    assert int(user) > 0
    assert any(f"--uid {user}" in run for run in values(final, "RUN"))
    names = [name for name, _ in final]
    assert names.index("USER") > max(at for at, name in enumerate(names) if name in {"RUN", "COPY"})


def test_signals_reach_the_command_itself(stages: list[list[tuple[str, str]]]) -> None:
    [entry_point] = values(stages[-1], "ENTRYPOINT")
    [command] = values(stages[-1], "CMD")
    assert json.loads(entry_point) == ["batchjobs"]
    assert json.loads(command) == ["--help"]


def test_everything_copied_is_in_the_tree_and_not_ignored(
    stages: list[list[tuple[str, str]]],
) -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    sources = [source for copy in copies(stages[0]) for source in copy[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists()
        assert any(fnmatch(source, pattern) for pattern in kept), source
    assert "*" in ignore


def test_torch_comes_first_from_the_index_of_the_build(
    stages: list[list[tuple[str, str]]],
) -> None:
    build = stages[0]
    assert values(build, "ARG") == ["TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu"]
    installs = [run for run in values(build, "RUN") if "pip install" in run]
    assert [run.split()[-1] for run in installs] == ["torch", "."]
    assert '--index-url "$TORCH_INDEX_URL"' in installs[0]
    assert all("--constraint constraints.txt" in run for run in installs)
