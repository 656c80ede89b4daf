"""Suites of questions run as ordinary jobs, their answers scored, and runs measured against a
pinned baseline."""
