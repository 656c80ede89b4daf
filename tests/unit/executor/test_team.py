"""The threads that compiled kernels run on, over both kinds of OpenMP runtime."""

from __future__ import annotations

import sys

import pytest

from executor.compiled import openmp, team
from tests.support.machines import llvm_openmp, run_apart

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="preloads a runtime into torch")


@pytest.mark.parametrize("runtime", ["GNU OpenMP", "LLVM OpenMP"])
def test_a_team_keeps_its_promises(runtime: str) -> None:
    preloaded = {"LD_PRELOAD": str(llvm_openmp())} if runtime == "LLVM OpenMP" else {}
    answers = run_apart("tests.support.team_conformance", **preloaded)
    once = {"each_ticket_once": True}
    assert answers == {
        "name": runtime,
        "calls": {str(threads): {"calls": threads, **once} for threads in (4, 1, 3)},
        "early": 0,
        "added_threads": 0,
        "from_another_thread": [{"calls": 2, **once}],
        "faults": [],
    }


def test_the_runtime_is_the_one_that_torch_calls() -> None:
    library = openmp.loaded_runtime()
    assert library is not None
    assert "libgomp" in library._name
    assert "torch" in library._name


def test_without_a_runtime_there_is_no_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmp, "_PROBE", "omp_function_that_nobody_has")
    assert openmp.loaded_runtime() is None
    monkeypatch.setattr(team, "loaded_runtime", openmp.loaded_runtime)
    team.openmp.cache_clear()
    try:
        assert team.openmp() is None
    finally:
        team.openmp.cache_clear()
