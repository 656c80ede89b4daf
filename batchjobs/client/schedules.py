"""What a command asks of schedules: of the data here, or of a server. Answers are the API's."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Protocol
from urllib.parse import quote

from batchjobs.client.connection import Connection
from batchjobs.deployment import Deployment
from batchjobs.errors import NotFoundError, UsageError
from batchjobs.files import add_file
from batchjobs.intake import INPUT_PURPOSE
from batchjobs.schedules.desk import Desk, Wire
from batchjobs.schedules.orders import ScheduleOrder


class Schedules(Protocol):
    """Raises what `client.base.Client` does."""

    def store(self, stream: BinaryIO, filename: str) -> str:
        """The id of a file for `add`: every slot runs these bytes."""

    def add(self, order: ScheduleOrder) -> Wire: ...

    def index(self) -> list[Wire]: ...

    def pause(self, name: str) -> Wire: ...

    def resume(self, name: str) -> Wire: ...

    def remove(self, name: str) -> Wire: ...

    def run(self, name: str) -> Wire: ...

    def history(self, name: str, *, limit: int, after: str | None = None) -> Wire: ...


class EmbeddedSchedules(Desk):
    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._here = deployment

    def store(self, stream: BinaryIO, filename: str) -> str:
        return add_file(
            self._here,
            stream,
            filename=filename,
            purpose=INPUT_PURPOSE,
            max_bytes=self._here.settings.max_input_bytes,
        ).id


class RemoteSchedules:
    def __init__(self, server: Connection, upload: Callable[[BinaryIO, str], str]) -> None:
        self._server = server
        self.store = upload

    def add(self, order: ScheduleOrder) -> Wire:
        if order.suites:
            raise UsageError(
                "A schedule of suites is added on the server's own machine, where the suites are"
                f" (BATCHJOBS_URL is {self._server.url})."
            )
        asked = {
            "name": order.name,
            "cron": order.cron,
            "timezone": order.zone,
            "input_file_id": order.file_id,
            "endpoint": order.endpoint,
            "model": order.model,
            "deadline": order.deadline,
            "completion_window": order.window,
            "priority": order.priority,
            "overlap": str(order.overlap),
            "catch_up": order.catch_up,
        }
        known = {name: value for name, value in asked.items() if value is not None}
        answer = self._server.post("/v1/schedules", may_repeat=False, json=known)
        return self._server.read_object(answer, "schedule")

    def index(self) -> list[Wire]:
        page = self._server.read_object(self._server.get("/v1/schedules"), "list")
        found: list[Wire] = page["data"]
        return found

    def pause(self, name: str) -> Wire:
        return self._change(name, "pause", "schedule")

    def resume(self, name: str) -> Wire:
        return self._change(name, "resume", "schedule")

    def remove(self, name: str) -> Wire:
        return self._server.read_object(self._server.delete(_path(name)), "schedule.deleted")

    def run(self, name: str) -> Wire:
        return self._change(name, "run", "schedule.slot")

    def history(self, name: str, *, limit: int, after: str | None = None) -> Wire:
        query = {"limit": limit} if after is None else {"limit": limit, "after": after}
        answer = self._server.get(f"{_path(name)}/history", params=query)
        return self._server.read_object(answer, "list")

    def _change(self, name: str, how: str, kind: str) -> Wire:
        answer = self._server.post(f"{_path(name)}/{how}", may_repeat=how != "run")
        return self._server.read_object(answer, kind)


def _path(name: str) -> str:
    if name in ("", ".", ".."):  # these would be another path
        raise NotFoundError(f"There is no schedule '{name}'.")
    return f"/v1/schedules/{quote(name, safe='')}"
