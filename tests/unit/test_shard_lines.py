from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from batchjobs.errors import IntegrityError
from batchjobs.files import add_file
from batchjobs.queue.claims import Work
from batchjobs.shard_lines import read_shard
from tests.support.jobs import claim, must_claim, open_deployment, request_line, start_job


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path) as opened:
        yield opened


def numbers_and_ids(deployment: Deployment, work: Work) -> list[tuple[int, str]]:
    return [(line.number, line.custom_id) for line in read_shard(deployment.store, work)]


def replaced_input(deployment: Deployment, work: Work, data: bytes) -> Work:
    """The same shard of another input object."""
    file = add_file(deployment, io.BytesIO(data), filename="other", purpose="batch")
    return replace(work, input_key=file.key, byte_start=0, byte_end=len(data))


def test_shards_of_mixed_models_have_their_own_lines_and_together_all(
    deployment: Deployment,
) -> None:
    models = "xyxxyzyxxz"
    requests = [request_line(f"id-{n}", model=model) for n, model in enumerate(models, 1)]
    start_job(deployment, requests, shard_max_lines=3)
    found: dict[int, str] = {}
    while (held := claim(deployment)) is not None:
        for line in read_shard(deployment.store, held):
            assert (line.custom_id, line.model) == (f"id-{line.number}", held.model)
            assert line.body["model"] == held.model
            found[line.number] = held.model
    assert "".join(found[number] for number in sorted(found)) == models


def test_sizes_of_all_lines_add_up_to_the_input(deployment: Deployment) -> None:
    start_job(deployment, [request_line(name) for name in "abc"])
    sizes, input_key = 0, ""
    while (held := claim(deployment)) is not None:
        input_key = held.input_key
        sizes += sum(line.size for line in read_shard(deployment.store, held))
    assert sizes == deployment.store.size(input_key)


def test_override_takes_the_place_of_every_lines_model(deployment: Deployment) -> None:
    requests = [request_line("a", model="x"), request_line("b", model="y")]
    start_job(deployment, requests, model_override="big")
    lines = list(read_shard(deployment.store, must_claim(deployment)))
    assert [(line.model, line.body["model"]) for line in lines] == [("big", "big")] * 2


def test_blank_lines_and_a_missing_last_line_feed_keep_the_numbers(
    deployment: Deployment,
) -> None:
    start_job(deployment, [request_line(name) for name in "ab"])
    work = must_claim(deployment)
    data = f"\n{json.dumps(request_line('a'))}\r\n \n\n{json.dumps(request_line('b'))}".encode()
    assert numbers_and_ids(deployment, replaced_input(deployment, work, data)) == [
        (2, "a"),
        (5, "b"),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        [request_line("a")],
        [request_line("a"), request_line("b"), request_line("c")],
        [request_line("a"), request_line("b", model="other")],
        [request_line("a"), {"custom_id": "b"}],
        [request_line("a"), {**request_line("b"), "body": {}}],
        [request_line("a"), [1]],
    ],
)
def test_input_that_is_not_what_was_validated_is_an_integrity_error(
    deployment: Deployment, lines: list[object]
) -> None:
    start_job(deployment, [request_line(name) for name in "ab"])
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    work = replaced_input(deployment, must_claim(deployment), data)
    with pytest.raises(IntegrityError, match="not what was validated"):
        list(read_shard(deployment.store, work))
