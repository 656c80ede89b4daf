"""The sections of the page in the order of the navigation: a new one is entered here."""

from __future__ import annotations

from batchjobs.api.page import evals, jobs, schedules, workers
from batchjobs.api.page.section import Section

SECTIONS: tuple[Section, ...] = (
    jobs.SECTION,
    schedules.SECTION,
    evals.SECTION,
    workers.SECTION,
)
