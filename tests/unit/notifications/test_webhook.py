from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import timedelta

import pytest
from openai import InvalidWebhookSignatureError
from openai.types.webhooks import BatchCompletedWebhookEvent
from sqlalchemy import select

from batchjobs.deployment import Deployment
from batchjobs.notifications.backoff import JITTER, PAUSES
from batchjobs.notifications.office import Office
from batchjobs.notifications.tables import Channel, Delivery, Event
from batchjobs.queue import events, jobs
from batchjobs.settings import Settings
from tests.support.jobs import clock_of, complete_all, create_job, request_line, start_job
from tests.support.receiver import Receiver
from tests.unit.notifications.conftest import SECRET

HOUR = timedelta(hours=1)


def end_a_job(deployment: Deployment) -> str:
    """One that fails validation."""
    job_id = create_job(deployment)
    with deployment.database.write() as session:
        jobs.fail_validation(session, deployment.clock, job_id, [])
    return job_id


def emit(deployment: Deployment, kind: str = "batch.completed") -> str:
    with deployment.database.write() as session:
        now = deployment.clock.now(session)
        return events.emit(session, kind, {"id": "batch_1"}, now=now).id


def delivery_of(deployment: Deployment, event_id: str) -> Delivery:
    with deployment.database.read() as session:
        return session.scalars(select(Delivery).where(Delivery.event_id == event_id)).one()


def test_end_of_a_job_arrives_as_openai_clients_read_it(
    deployment: Deployment, receiver: Receiver
) -> None:
    from batchjobs.finalize import finalize

    job_id = start_job(deployment, [request_line("a")])
    complete_all(deployment, job_id)
    finalize(deployment, job_id)
    Office(deployment).work()
    [event] = receiver.unwrapped(SECRET)
    assert isinstance(event, BatchCompletedWebhookEvent)
    assert event.data.id == job_id
    assert receiver.ids() == [event.id]
    headers, body = receiver.received[0]
    assert headers["content-type"] == "application/json"
    assert set(json.loads(body)) == {"id", "object", "created_at", "type", "data"}


def test_signature_of_another_secret_is_refused_by_the_client(
    deployment: Deployment, receiver: Receiver
) -> None:
    emit(deployment)
    Office(deployment).work()
    with pytest.raises(InvalidWebhookSignatureError):
        receiver.unwrapped("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")


@pytest.mark.parametrize("end", ["failed", "cancelled", "expired"])
def test_every_end_of_a_job_is_told_once(
    deployment: Deployment, receiver: Receiver, end: str
) -> None:
    from batchjobs.worker.tending import tend

    if end == "failed":
        job_id = end_a_job(deployment)
    else:
        job_id = start_job(deployment, [request_line("a")])
        if end == "expired":
            clock_of(deployment).advance(timedelta(days=2))
        else:
            with deployment.database.write() as session:
                jobs.cancel(session, deployment.clock, job_id)
        tend(deployment)
        tend(deployment)
    for _ in range(2):
        Office(deployment).work()
    bodies = [json.loads(body) for _, body in receiver.received]
    assert [(body["type"], body["data"]["id"]) for body in bodies] == [(f"batch.{end}", job_id)]


def test_failed_delivery_is_tried_again_after_a_restart_under_the_same_id(
    deployment: Deployment, receiver: Receiver
) -> None:
    receiver.statuses = [500, 503]
    event_id = emit(deployment)
    for _ in range(3):
        Office(deployment).work()
        clock_of(deployment).advance(timedelta(minutes=6))
    assert receiver.ids() == [event_id] * 3
    delivery = delivery_of(deployment, event_id)
    assert (delivery.attempts, delivery.error, delivery.due_at) == (3, None, None)
    assert delivery.delivered_at is not None
    receiver.unwrapped(SECRET)


def test_pauses_grow_and_end(deployment: Deployment, receiver: Receiver) -> None:
    receiver.statuses = [500] * 20
    event_id = emit(deployment)
    began = clock_of(deployment)
    pauses = []
    while (due := _attempt(deployment, event_id)) is not None:
        with deployment.database.read() as session:
            pauses.append(round((due - began.now(session)).total_seconds()))
            began.advance(due - began.now(session))
    assert len(receiver.received) == 10
    assert pauses == sorted(pauses)
    for pause, planned in zip(pauses, PAUSES, strict=True):
        assert abs(pause - planned) <= planned * JITTER + 1
    assert 70 * HOUR < timedelta(seconds=sum(pauses)) < 84 * HOUR
    delivery = delivery_of(deployment, event_id)
    assert delivery.given_up_at is not None
    assert delivery.error == "the receiver answered 500"


def _attempt(deployment: Deployment, event_id: str):  # type: ignore[no-untyped-def]
    Office(deployment).work()
    return delivery_of(deployment, event_id).due_at


def test_receiver_that_wants_no_more_gets_no_more(
    deployment: Deployment, receiver: Receiver
) -> None:
    receiver.statuses = [410]
    assert _attempt(deployment, emit(deployment)) is None


def test_redirection_is_not_followed(deployment: Deployment, receiver: Receiver) -> None:
    receiver.statuses, receiver.headers = [302], {"location": receiver.url}
    event_id = emit(deployment)
    assert _attempt(deployment, event_id) is not None
    assert len(receiver.received) == 1
    assert "redirection" in (delivery_of(deployment, event_id).error or "")


def test_receiver_may_ask_for_patience(deployment: Deployment, receiver: Receiver) -> None:
    receiver.statuses, receiver.headers = [429], {"retry-after": "3600"}
    due = _attempt(deployment, emit(deployment))
    with deployment.database.read() as session:
        assert due == deployment.clock.now(session) + HOUR


def test_nobody_listening_is_a_failed_attempt(tmp_path, caplog) -> None:  # type: ignore[no-untyped-def]
    from tests.support.jobs import open_deployment

    url = "http://127.0.0.1:9/secret-path"
    with (
        open_deployment(tmp_path, webhook_url=url, webhook_secret=SECRET) as deployment,
        caplog.at_level(logging.DEBUG),
    ):
        event_id = emit(deployment)
        assert _attempt(deployment, event_id) is not None
        assert delivery_of(deployment, event_id).error == "no answer (ConnectError)"
    assert SECRET not in caplog.text
    assert SECRET.removeprefix("whsec_") not in caplog.text


def test_delivery_whose_sender_died_is_taken_over(
    deployment: Deployment, receiver: Receiver
) -> None:
    event_id = emit(deployment)
    with deployment.database.write() as session:
        events.route(session, deployment.clock, Office(deployment).channels_for)
    with deployment.database.write() as session:
        assert events.take(session, deployment.clock, [Channel.WEBHOOK]) is not None
    Office(deployment).work()
    assert receiver.received == []
    clock_of(deployment).advance(timedelta(seconds=events.SENDING_SECONDS))
    Office(deployment).work()
    assert receiver.ids() == [event_id]


def test_late_word_of_a_sender_that_was_replaced_changes_nothing(deployment: Deployment) -> None:
    event_id = emit(deployment)
    with deployment.database.write() as session:
        events.route(session, deployment.clock, Office(deployment).channels_for)
    with deployment.database.write() as session:
        stale = events.take(session, deployment.clock, [Channel.WEBHOOK])
    clock_of(deployment).advance(timedelta(seconds=events.SENDING_SECONDS))
    Office(deployment).work()
    assert stale is not None
    with deployment.database.write() as session:
        events.note_failed(session, deployment.clock, stale, "late", again_in=HOUR)
    assert delivery_of(deployment, event_id).due_at is None


def test_two_offices_tell_once(deployment: Deployment, receiver: Receiver) -> None:
    import threading

    for _ in range(10):
        emit(deployment)
    workers = [threading.Thread(target=Office(deployment).work) for _ in range(3)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    Office(deployment).work()
    assert len(receiver.ids()) == len(set(receiver.ids())) == 10


def test_patterns_choose_the_events_of_a_channel(
    deployment: Deployment, receiver: Receiver
) -> None:
    settings = Settings.load(
        webhook_url=receiver.url,
        webhook_secret=SECRET,
        webhook_events="eval.run.*, batch.failed",
    )
    for kind in ("batch.completed", "batch.failed", "eval.run.regressed"):
        emit(deployment, kind)
    Office(replace(deployment, settings=settings)).work()
    kinds = [json.loads(body)["type"] for _, body in receiver.received]
    assert sorted(kinds) == ["batch.failed", "eval.run.regressed"]


def test_events_before_a_channel_was_open_are_not_told_later(
    deployment: Deployment, receiver: Receiver
) -> None:
    emit(deployment)
    Office(replace(deployment, settings=Settings.load())).work()
    Office(deployment).work()
    assert receiver.received == []


def test_old_events_are_forgotten_but_for_those_that_wait(
    deployment: Deployment, receiver: Receiver
) -> None:
    receiver.statuses = [200, 500]
    done, waiting = emit(deployment), emit(deployment)
    Office(deployment).work()
    clock_of(deployment).advance(timedelta(days=events.KEPT_DAYS + 1))
    with deployment.database.write() as session:
        events.remove_old(session, deployment.clock)
    with deployment.database.read() as session:
        left = session.scalars(select(Event.id)).all()
    assert len(left) == 1
    assert left[0] in (done, waiting)


def test_event_can_be_sent_again(deployment: Deployment, receiver: Receiver) -> None:
    event_id = emit(deployment)
    Office(deployment).work()
    with deployment.database.write() as session:
        assert events.send_again(session, deployment.clock, event_id) == 1
    Office(deployment).work()
    assert receiver.ids() == [event_id] * 2
