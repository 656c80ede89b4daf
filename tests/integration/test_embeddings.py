"""The real embedding model: its vectors against sentence-transformers', and a whole batch."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from openai import OpenAI
from openai.types import CreateEmbeddingResponse

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.settings import Settings
from batchjobs.sources import pin_source
from batchjobs.worker.engines import CheckpointEngines
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from executor.embedding.build import ReadyEmbedder, build_embedder
from executor.embedding.recipe import find_recipe
from executor.loading import Checkpoint
from executor.prompts import PromptText
from executor.request import PoolingParams, Request
from executor.settings import EngineSettings
from tests.support.api import running_server
from tests.support.sentence_vectors import recorded, texts
from tests.support.tiny_models import save_tiny, tiny_config

pytestmark = pytest.mark.model

TEXTS = texts()


@pytest.fixture(scope="module")
def ready(embedding_model: Path) -> ReadyEmbedder:
    checkpoint = Checkpoint(source=str(embedding_model))
    recipe = find_recipe(checkpoint)
    assert recipe is not None
    return build_embedder(checkpoint, recipe, EngineSettings())


def embed(ready: ReadyEmbedder, texts: list[str]) -> NDArray[np.float32]:
    encoded = ready.texts.encode_batch([PromptText(text=text, longest=256) for text in texts])
    requests = [
        Request(id=str(index), prompt_token_ids=tuple(token_ids), pooling=PoolingParams())
        for index, token_ids in enumerate(encoded)
    ]
    vectors = {done.request_id: done.embedding for done in ready.engine.run(requests)}
    found = [np.frombuffer(vectors[str(index)] or b"", "<f4") for index in range(len(texts))]
    return np.stack(found)


def test_vectors_are_those_of_sentence_transformers(ready: ReadyEmbedder) -> None:
    assert ready.is_packed
    ours, theirs = embed(ready, TEXTS), recorded()
    assert len(TEXTS) == len(theirs) > 100
    lengths = np.linalg.norm(theirs, axis=1)
    cosines = (ours * theirs).sum(axis=1) / lengths
    assert cosines.min() >= 0.99999
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-5)


def test_a_vector_does_not_depend_on_its_company(ready: ReadyEmbedder) -> None:
    together = embed(ready, TEXTS)
    alone = np.concatenate([embed(ready, [text]) for text in TEXTS[:40]])
    np.testing.assert_allclose(together[:40], alone, atol=1e-6)


@pytest.fixture
def deployment(tmp_path: Path, embedding_model: Path) -> Iterator[Deployment]:
    """With the embedding model as `embedder`, and a model that generates as `tiny`."""
    save_tiny(tmp_path / "tiny", tiny_config("llama"))
    with Deployment.open(Settings.load(home=tmp_path / "home")) as opened:
        for name, folder in (("embedder", embedding_model), ("tiny", tmp_path / "tiny")):
            source = pin_source(str(folder))
            with opened.database.write() as session:
                catalogue.add(
                    session,
                    opened.clock,
                    name=name,
                    source=source.location,
                    revision=source.revision,
                    aliases=("text-embedding-3-small",) if name == "embedder" else (),
                )
        yield opened


def line(custom_id: str, url: str = "/v1/embeddings", **body: Any) -> dict[str, Any]:
    body = {"model": "text-embedding-3-small", **body}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def run_batch(
    deployment: Deployment, lines: list[dict[str, Any]]
) -> tuple[dict[str, dict[str, Any]], Any]:
    """The response of each line, by custom id, and the batch as the openai client has it."""
    home = deployment.settings.home
    with (
        running_server(home, poll_seconds=0.1) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        data = "".join(json.dumps(one) + "\n" for one in lines).encode()
        file = client.files.create(file=data, purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id,
            endpoint=lines[0]["url"],
            completion_window="24h",
        )
        while client.batches.retrieve(batch.id).status == "validating":
            pass
        run_jobs(
            deployment,
            job_id=batch.id,
            engines=CheckpointEngines(deployment.settings),
            stop=StopSignal(grace_seconds=60, forced_exit=9),
        )
        batch = client.batches.retrieve(batch.id)
        assert batch.status == "completed"
        found = {}
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id is not None:
                for text in client.files.content(file_id).text.splitlines():
                    record = json.loads(text)
                    found[record["custom_id"]] = record["response"]
    return found, batch


def test_a_batch_of_embeddings_runs_for_the_openai_client(deployment: Deployment) -> None:
    answers, batch = run_batch(
        deployment,
        [
            line("text", input="hello world"),
            line("texts", input=["hello world", "日本語", "hello world"], user="me"),
            line("base64", input="hello world", encoding_format="base64"),
            line("ids", input=[101, 7592, 2088, 102]),
            line("lists", input=[[101, 7592, 2088, 102], [101, 102]]),
            line("cut", input="word " * 400, truncate_prompt_tokens=-1),
            line("long", input=["short", "word " * 400]),
            line("empty", input=["short", ""]),
            line("shorter", input="hello", dimensions=12),
        ],
    )
    packed: Any = answers["base64"]["body"]["data"][0]
    # As the client does where it asks for base64 itself.
    packed["embedding"] = np.frombuffer(base64.b64decode(packed["embedding"]), "<f4").tolist()
    good = {
        name: CreateEmbeddingResponse.model_validate(answer["body"])
        for name, answer in answers.items()
        if answer["status_code"] == 200
    }
    assert set(good) == {"text", "texts", "base64", "ids", "lists", "cut"}
    vector = np.array(good["text"].data[0].embedding, dtype="<f4")
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    assert good["text"].model == "text-embedding-3-small"
    assert good["text"].usage.prompt_tokens == good["text"].usage.total_tokens == 4
    assert [item.index for item in good["texts"].data] == [0, 1, 2]
    for same in (
        good["texts"].data[2].embedding,
        good["ids"].data[0].embedding,
        good["lists"].data[0].embedding,
        good["base64"].data[0].embedding,
    ):
        np.testing.assert_allclose(same, vector, atol=1e-6)
    assert good["cut"].usage.prompt_tokens == 256
    errors = {name: answer["body"]["error"] for name, answer in answers.items() if name not in good}
    assert {name: (error["param"], error["code"]) for name, error in errors.items()} == {
        "long": ("input[1]", "context_length_exceeded"),
        "empty": ("input[1]", "empty_string"),
        "shorter": ("dimensions", "invalid_value"),
    }
    assert "256 tokens" in errors["long"]["message"]
    assert "402 tokens" in errors["long"]["message"]
    assert batch.usage.input_tokens == sum(one.usage.prompt_tokens for one in good.values())
    assert batch.usage.output_tokens == 0


def test_a_model_is_refused_for_what_it_does_not_give(deployment: Deployment) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    answers, _ = run_batch(deployment, [line("a", "/v1/chat/completions", messages=messages)])
    error = answers["a"]["body"]["error"]
    assert (error["param"], error["code"]) == ("model", "unsupported_model")
    assert "its endpoint is /v1/embeddings" in error["message"]
    answers, _ = run_batch(deployment, [line("b", model="tiny", input="Hi")])
    error = answers["b"]["body"]["error"]
    assert (error["param"], error["code"]) == ("model", "unsupported_model")
    assert "gives no embeddings" in error["message"]
