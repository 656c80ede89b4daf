"""What becomes of a job once there is one, by where its data lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchjobs.cli.account import Account
from batchjobs.cli.delivery import Destinations
from batchjobs.cli.following import Following
from batchjobs.errors import UsageError

if TYPE_CHECKING:
    from batchjobs.cli.exits import Exit
    from batchjobs.cli.running import Running
    from batchjobs.client.base import Client
    from batchjobs.client.batch import Batch


def course_of(client: Client, account: Account, *, profile: bool = False) -> Running | Following:
    if client.deployment is None:
        return Following(client, account)
    from batchjobs.cli.running import Running

    return Running(client, client.deployment, account, profile=profile)


def begin(
    client: Client,
    batch: Batch,
    destinations: Destinations,
    *,
    wait: bool,
    detach: bool,
    as_json: bool,
    profile: bool = False,
) -> Exit:
    """Announce a new job, and see it to its end or leave it.

    The job of a server is left unless there is something to wait for: `wait` or a destination.
    """
    account = Account(client, destinations, as_json=as_json)
    account.say(batch.id)
    course = course_of(client, account, profile=profile)
    stays = client.deployment is not None or wait or bool(destinations.options)
    return course.run(batch.id) if stays and not detach else course.leave(batch.id)


def check_waiting(*, wait: bool, detach: bool) -> None:
    """Raises UsageError."""
    if wait and detach:
        raise UsageError("--wait and --detach cannot both be: name one.")


def check_profiling(client: Client, *, profile: bool, detach: bool) -> None:
    """Raises UsageError where the engine is another process's."""
    if profile and (detach or client.deployment is None):
        raise UsageError(
            "--profile measures the engine of this process, and here another one runs the job:"
            " give it to that one, batchjobs worker --profile."
        )
