"""Suites of questions run as ordinary jobs, their answers scored, and runs compared with a pinned baseline."""
