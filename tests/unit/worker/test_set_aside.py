from __future__ import annotations

from batchjobs.worker.set_aside import TRY_AGAIN_SECONDS, SetAside


def test_a_model_is_set_aside_for_a_while() -> None:
    now = [0.0]
    aside = SetAside(clock=lambda: now[0])
    aside.add("a")
    assert aside.names == {"a"}
    now[0] = TRY_AGAIN_SECONDS - 1
    assert aside.names == {"a"}
    now[0] = TRY_AGAIN_SECONDS
    assert aside.names == set()


def test_all_is_said_only_of_models_that_are_named() -> None:
    aside = SetAside(clock=lambda: 0.0)
    aside.add("a")
    assert aside.has_all(["a"])
    assert not aside.has_all(["a", "b"])
    assert not aside.has_all(None)
