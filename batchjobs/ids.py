"""Identifiers: unguessable for files and jobs, derived for everything that a rerun must repeat."""

from __future__ import annotations

import hashlib
import secrets


def new_job_id() -> str:
    return f"batch_{secrets.token_hex(16)}"


def new_file_id() -> str:
    return f"file-{secrets.token_hex(16)}"


def new_key_id() -> str:
    return f"key_{secrets.token_hex(8)}"


def new_worker_id() -> str:
    return f"worker-{secrets.token_hex(8)}"


def new_run_id() -> str:
    return f"run_{secrets.token_hex(12)}"


def new_schedule_id() -> str:
    return f"sched_{secrets.token_hex(8)}"


def line_digest(job_id: str, line: int) -> str:
    """32 hex digits naming one line of one job; the same before and after a crash."""
    return hashlib.blake2b(f"{job_id}:{line}".encode(), digest_size=16).hexdigest()
