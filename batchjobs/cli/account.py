"""What a command that sees a job to its end tells a person of it, and a program."""

from __future__ import annotations

from collections.abc import Iterable

import click

from batchjobs.cli.delivery import Destinations, deliver
from batchjobs.cli.exits import Exit
from batchjobs.cli.render import print_json
from batchjobs.cli.summary import summarize
from batchjobs.client.base import Client
from batchjobs.client.batch import Batch
from batchjobs.states import JobState


class Account:
    def __init__(self, client: Client, destinations: Destinations, *, as_json: bool) -> None:
        self._client = client
        self._as_json = as_json
        self.destinations = destinations

    def say(self, sentence: str) -> None:
        """To a person: on standard output unless that is for a program."""
        click.echo(sentence, err=self._as_json or self.destinations.uses_stdout)

    def leave(self, batch: Batch, sentence: str) -> Exit:
        """The end for a command that does not wait for the job's."""
        if self._as_json:
            print_json(batch.wire)
        else:
            self.say(sentence)
        return Exit.DONE

    def conclude(self, batch: Batch, report: Iterable[str] = ()) -> Exit:
        """Sum up and deliver a job that has ended; `report` is how the engine did."""
        for sentence in summarize(self._client, batch, self.destinations):
            self.say(sentence)
        for sentence in report:
            self.say(sentence)
        for sentence in deliver(self._client, batch, self.destinations):
            self.say(sentence)
        if self._as_json:
            print_json(batch.wire)
        return exit_code(batch)

    def resume_command(self, job_id: str) -> str:
        return f"batchjobs resume {job_id}{self.destinations.options}"


def exit_code(batch: Batch) -> Exit:
    """What a command that waited for the job ends with."""
    match batch.status:
        case JobState.COMPLETED:
            return Exit.FAILED_LINES if batch.failed_lines else Exit.DONE
        case JobState.FAILED:
            return Exit.INVALID
        case JobState.CANCELLED | JobState.EXPIRED:
            return Exit.ENDED_EARLY
    return Exit.INTERRUPTED
