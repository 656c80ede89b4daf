"""The TOML file that settings may stand in, under their names in lower case."""

from __future__ import annotations

import difflib
import os
import stat
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import platformdirs

from batchjobs.errors import UsageError

VARIABLE = "BATCHJOBS_CONFIG"
FILE_NAME = "batchjobs.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """`path` is None if there is to be none; a file that was asked for `must_exist`."""

    path: Path | None
    must_exist: bool

    @classmethod
    def find(cls) -> Self:
        """The one that `$BATCHJOBS_CONFIG` names (empty: none), else the user's."""
        if (named := os.environ.get(VARIABLE)) is not None:
            return cls(path=Path(named) if named else None, must_exist=True)
        folder = platformdirs.user_config_dir("batchjobs")
        return cls(path=Path(folder) / FILE_NAME, must_exist=False)

    @property
    def exists(self) -> bool:
        return self.path is not None and self.path.is_file()

    def read(self, *, known: Collection[str]) -> dict[str, Any]:
        """What it sets; {} without a file. Raises UsageError, also for a key not `known`."""
        found = self._parse()
        for key in found:
            if key not in known:
                raise UsageError(self._unknown(key, known))
        return found

    def exposed(self, secrets: Collection[str]) -> str | None:
        """A warning if others than its owner can read one of these settings in it."""
        if self.path is None or not self.exists or os.name != "posix":
            return None
        is_open = self.path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
        held = ", ".join(key for key in self._parse() if key in secrets)
        if not (is_open and held):
            return None
        return f"Others can read {held} in {self.path}; make it private: chmod 600 {self.path}"

    def _parse(self) -> dict[str, Any]:
        if self.path is None or not (self.exists or self.must_exist):
            return {}
        try:
            with self.path.open("rb") as file:
                return tomllib.load(file)
        except OSError as failed:
            raise UsageError(
                f"The settings file {self.path} cannot be read ({failed.strerror});"
                f" {VARIABLE} says which one to read."
            ) from failed
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
            raise UsageError(f"The settings file {self.path} is not TOML: {wrong}.") from None

    def _unknown(self, key: str, known: Collection[str]) -> str:
        near = difflib.get_close_matches(key.lower(), known, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else " docs/settings.md has those there are."
        return f"The settings file {self.path} has an unknown key '{key}'.{hint}"
