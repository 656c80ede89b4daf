"""A real browser: the machine's Chromium, driven by playwright, which downloads nothing.

`BATCHJOBS_TEST_CHROMIUM` names its program; `BATCHJOBS_TEST_SCREENSHOTS` a folder in which every
page that is looked at leaves a picture.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    expect,
    sync_playwright,
)

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PICTURES = "BATCHJOBS_TEST_SCREENSHOTS"
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
WAIT_MS = 60_000
"""For a machine that does much else; nothing here takes a second on a quiet one."""

Scheme = Literal["light", "dark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What somebody looks at the page with."""

    size: str = "desktop"
    scheme: Scheme = "light"

    def __str__(self) -> str:
        return f"{self.size}-{self.scheme}"


FORMS = [
    Form(size=size, scheme=scheme)
    for size in SIZES
    for scheme in ("light", "dark")  # type: ignore[arg-type]
]


@dataclass(slots=True)
class Watched:
    """A page, and what it complained of: errors in its console, requests to elsewhere."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.page.on("console", lambda message: self._hear(message))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._follow(request))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _follow(self, request: Request) -> None:
        if urlsplit(request.url).hostname not in ("127.0.0.1", None):
            self.complaints.append(f"asked elsewhere: {request.url}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = os.environ.get("BATCHJOBS_TEST_CHROMIUM") or next(
        filter(None, map(shutil.which, PROGRAMS)), None
    )
    if program is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    expect.set_options(timeout=WAIT_MS)
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        launched = _launch(playwright, program, Path(home))
        yield launched
        launched.close()


def _launch(playwright: Playwright, program: str, home: Path) -> Browser:
    """With nothing of the person's who runs the tests."""
    env: dict[str, str | float | bool] = {**os.environ, "HOME": str(home)}
    return playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS), env=env)


@contextmanager
def looking(browser: Browser, form: Form | None = None) -> Iterator[Watched]:
    """A fresh page, without cookies; its complaints fail the test at the end."""
    form = form or Form()
    width, height = SIZES[form.size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=form.scheme,
        has_touch=form.size == "phone",
        reduced_motion="reduce",
    )
    context.set_default_timeout(WAIT_MS)
    watched = Watched(context.new_page())
    watched.start()
    try:
        yield watched
        assert watched.complaints == []
    finally:
        context.close()


def wants_pictures() -> bool:
    return bool(os.environ.get(PICTURES))


def take_picture(page: Page, name: str, form: Form) -> None:
    if wants_pictures():
        path = Path(os.environ[PICTURES]) / f"{name}-{form}.png"
        page.screenshot(path=path, full_page=True, animations="disabled")
