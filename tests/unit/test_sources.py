from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from batchjobs.errors import ModelError, NotFoundError
from batchjobs.sources import folder_digest, pin_source

CONFIG = b'{"model_type": "llama"}'
TOKENIZER = b"{}"
WEIGHTS = (2).to_bytes(8, "little") + b"{}"
COMMIT = "12fd25f77366fa6b3b4b768ec3050bf629380bac"


def model_folder(folder: Path, weights: str = "model.safetensors") -> Path:
    folder.mkdir()
    (folder / "config.json").write_bytes(CONFIG)
    (folder / weights).write_bytes(WEIGHTS)
    (folder / "tokenizer.json").write_bytes(TOKENIZER)
    return folder


def test_a_folder_is_pinned_by_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder(tmp_path / "small")
    monkeypatch.chdir(tmp_path)
    source = pin_source("small")
    assert source.location == str(folder)
    files = (("config.json", CONFIG), ("model.safetensors", WEIGHTS), ("tokenizer.json", TOKENIZER))
    lines = [f"{name}\0{hashlib.sha256(data).hexdigest()}\n" for name, data in files]
    assert source.revision == hashlib.sha256("".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_another_content_is_another_revision(tmp_path: Path, name: str) -> None:
    folder = model_folder(tmp_path / "small")
    before = folder_digest(folder)
    (folder / name).write_text("changed")
    assert folder_digest(folder) != before


def test_notes_beside_the_weights_do_not_change_the_revision(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "small")
    before = folder_digest(folder)
    (folder / "README.md").write_text("A note.")
    assert folder_digest(folder) == before


def test_how_an_embedding_model_pools_is_part_of_its_revision(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "embedder")
    paths = ["", "1_Pooling", "2_Normalize", "../outside"]
    (folder / "modules.json").write_text(json.dumps([{"path": path} for path in paths]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    (tmp_path / "outside").mkdir()
    (folder / "onnx").mkdir()
    before = pin_source(str(folder)).revision
    (folder / "onnx" / "config.json").write_text("{}")
    (tmp_path / "outside" / "config.json").write_text("{}")
    assert folder_digest(folder) == before
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    assert folder_digest(folder) != before


def test_a_model_may_lie_in_the_first_folder_of_its_modules(tmp_path: Path) -> None:
    folder = tmp_path / "embedder"
    folder.mkdir()
    (folder / "modules.json").write_text(json.dumps([{"path": "0_Transformer"}]))
    with pytest.raises(ModelError, match=r"has no config\.json"):
        pin_source(str(folder))
    model_folder(folder / "0_Transformer")
    assert pin_source(str(folder)).location == str(folder)


def test_an_adapter_is_refused_by_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(ModelError, match=r"is an adapter .*merge_and_unload"):
        pin_source(str(tmp_path))


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "pickled", weights="pytorch_model.bin")
    with pytest.raises(ModelError, match=r"has no \.safetensors weights"):
        pin_source(str(folder))


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json"):
        pin_source(str(tmp_path))


def test_a_path_that_does_not_exist_is_not_taken_for_a_hub_id() -> None:
    with pytest.raises(NotFoundError, match="There is no folder /no/such/model"):
        pin_source("/no/such/model")


class _Hub(BaseHTTPRequestHandler):
    """What the hub says of one model with safetensors, one with a pickle, and no other."""

    files = {"org/good": "model.safetensors", "org/pickled": "pytorch_model.bin"}  # noqa: RUF012

    def do_GET(self) -> None:
        name = "/".join(self.path.partition("?")[0].split("/")[3:5])
        known = self.files.get(name)
        body = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": known}]}
        self.send_response(200 if known else 404)
        if known is None:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""


@pytest.fixture
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def pin_with_hub(hub: str, words: str) -> str:
    """In a process of its own: the hub's address is read at import."""
    program = f"from batchjobs.sources import pin_source\nprint(pin_source({words!r}).revision)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HF_ENDPOINT": hub, "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_a_hub_id_is_pinned_to_its_commit(hub: str) -> None:
    assert pin_with_hub(hub, "org/good") == COMMIT


def test_a_hub_id_without_safetensors_is_refused(hub: str) -> None:
    assert "org/pickled has no .safetensors weights" in pin_with_hub(hub, "org/pickled")


def test_an_unknown_hub_id_is_said_to_be_unknown(hub: str) -> None:
    assert "no public model of that id on the hub" in pin_with_hub(hub, "org/unknown")


def test_a_hub_that_does_not_answer_is_said_so() -> None:
    said = pin_with_hub("http://127.0.0.1:9", "org/good")
    assert "the Hugging Face hub cannot be asked" in said
