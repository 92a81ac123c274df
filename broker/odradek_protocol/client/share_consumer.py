"""A member of a share group: joins, fetches records, acknowledges them, leaves (KIP-932).

    with KafkaClient("localhost:9092") as client:
        consumer = ShareConsumer(client, "orders", ["orders"])
        try:
            while True:
                for record in consumer.poll():
                    print(record.record.value)
                    consumer.acknowledge(record)
        finally:
            consumer.close()

Not safe for threads, and there is no thread of its own: heartbeats are sent by `poll`, so a caller
that works on records for longer than share.session.timeout.ms is removed, and joins again with the
next poll. Brokers that restart and leaders that move are followed; `poll` raises when nothing has
answered for the client's deadline.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from odradek_protocol.client.deadline import BackOff, Deadline
from odradek_protocol.client.errors import (
    AnswerTimeoutError,
    BrokerError,
    ClientError,
    DisconnectedError,
    NoBrokerError,
    UnknownBrokerError,
    UnreachableError,
    UnreadableAnswerError,
    error_in,
    raise_error_in,
)
from odradek_protocol.client.fan_out import fan_out
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.metadata import NO_LEADER
from odradek_protocol.client.routes import (
    COORDINATOR_MOVED,
    LEADER_MOVED,
    Broker,
    Coordinator,
    CoordinatorType,
)
from odradek_protocol.client.share_session import Acquired, FetchLimits, Place, ShareSession, Taken
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_protocol.share_codes import AcknowledgeType

if TYPE_CHECKING:
    from odradek_protocol.records.records import Record

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
LEAVE_S = 5.0  # a member that cannot leave is removed when its session times out
_LOST = (
    AnswerTimeoutError, DisconnectedError, NoBrokerError, UnknownBrokerError, UnreachableError,
)  # fmt: skip
_REMOVED = frozenset({ErrorCode.unknown_member_id.value, ErrorCode.fenced_member_epoch.value})
_SESSION_GONE = frozenset({
    ErrorCode.share_session_not_found.value,
    ErrorCode.invalid_share_session_epoch.value,
    ErrorCode.share_session_limit_reached.value,  # until another session ends
})  # fmt: skip
# Transient errors: the leaders are looked up, and the broker is asked again.
_PASSES = LEADER_MOVED | COORDINATOR_MOVED | _SESSION_GONE | {
    ErrorCode.unknown_topic_or_partition.value,  # the broker does not know the new topic yet
    ErrorCode.unknown_topic_id.value,
    ErrorCode.kafka_storage_error.value,
    ErrorCode.request_timed_out.value,
    ErrorCode.fenced_state_epoch.value,
}  # fmt: skip


class ShareRecord(NamedTuple):
    topic: str
    partition: int
    record: Record
    delivery_count: int  # 1 at the first delivery
    broker_id: int  # the broker that holds the lock
    place: Place


# A partition whose acknowledgements were refused, or may not have arrived.
OnRefused = Callable[[TopicPartition, ClientError], None]


class ShareConsumer:
    """`drained`: the last poll waited for records of all partitions, and there were none."""

    def __init__(
        self,
        client: KafkaClient,
        group_id: str,
        topics: Iterable[str],
        on_refused: OnRefused = lambda place, error: None,  # noqa: ARG005
        limits: FetchLimits | None = None,
    ) -> None:
        self.member_id = str(uuid.uuid4())
        self.drained = False
        self._client = client
        self._group_id = group_id
        self._topics = list(topics)
        self._on_refused = on_refused
        self._limits = limits or FetchLimits()
        self._epoch = JOIN_EPOCH
        self._heartbeat_at = 0.0  # time.monotonic()
        self._assigned: set[Place] = set()
        self._names: dict[UUID, str] = {}
        self._leaders: dict[Place, int] = {}
        self._sessions: dict[int, ShareSession] = {}  # by broker
        self._succeeded()

    # -- for the caller ----------------------------------------------------------------------------

    def poll(self, max_records: int | None = None) -> list[ShareRecord]:
        """Records that are locked for this member; none if there are none for max_wait_ms."""
        self.drained = False
        limits = self._limits
        if max_records is not None and max_records < limits.max_records:
            limits = FetchLimits(limits.max_wait_ms, max_records, limits.max_bytes)
        try:
            self._heartbeat()
            if not self._assigned:  # the state of the group's partitions is being created
                self._heartbeat_at = 0.0
                self._joining.pause(Deadline(self._client.settings.deadline_s))
                return []
            found = self._fetch(limits)
        except ClientError as error:
            if not _passes(error) or not self._back_off.pause(self._deadline):
                raise
            self._leaders.clear()
            return []
        self._succeeded()
        return found

    def acknowledge(
        self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Sent with the next poll, or by close."""
        session = self._sessions.get(record.broker_id)
        if session is None or not session.acknowledge(record.place, record.record.offset, kind):
            self._refused(record.place, BrokerError(ErrorCode.share_session_not_found))

    def close(self) -> None:
        """Sends pending acknowledgements, releases the other records, and leaves the group."""
        for broker_id in list(self._sessions):
            self._end_session(broker_id)
        if self._epoch != JOIN_EPOCH:
            with suppress(ClientError):  # see LEAVE_S
                self._send_heartbeat(LEAVE_EPOCH, Deadline(LEAVE_S))
            self._epoch = JOIN_EPOCH

    # -- membership --------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        if time.monotonic() < self._heartbeat_at:
            return
        answer = self._send_heartbeat(self._epoch)
        error = error_in(answer)
        if error is not None and error.code in _REMOVED:
            self._epoch = JOIN_EPOCH
            self._assigned.clear()
            for session in self._sessions.values():
                session.reset()
            return
        raise_error_in(answer)
        self._epoch = answer.member_epoch
        self._heartbeat_at = time.monotonic() + answer.heartbeat_interval / 1000
        if answer.assignment is not None:
            self._assigned = {
                Place(topic.topic_id, number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            }

    def _send_heartbeat(self, epoch: int, deadline: Deadline | None = None) -> Struct:
        request = Struct(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=self._topics if epoch == JOIN_EPOCH else None,
        )
        route = Coordinator(CoordinatorType.GROUP, self._group_id)
        return self._client.call(route, ApiKey.SHARE_GROUP_HEARTBEAT, request, deadline=deadline)

    # -- records -----------------------------------------------------------------------------------

    def _fetch(self, limits: FetchLimits) -> list[ShareRecord]:
        wanted = self._wanted()
        for broker_id in [one for one in self._sessions if one not in wanted]:
            self._end_session(broker_id)
        requests = {}
        for broker_id, places in wanted.items():
            session = self._sessions.setdefault(
                broker_id, ShareSession(self._group_id, self.member_id)
            )
            requests[broker_id] = session.fetch(places, limits)
        quiet = not any(self._sessions[broker_id].sent for broker_id in wanted)
        answers = fan_out({
            broker_id: partial(self._client.call, Broker(broker_id), ApiKey.SHARE_FETCH, request)
            for broker_id, request in requests.items()
        })  # fmt: skip
        found: list[ShareRecord] = []
        errors: dict[Place, ClientError] = {}
        for broker_id, answer in answers.items():
            try:
                taken = self._take(broker_id, answer)
            except ClientError as error:
                errors |= dict.fromkeys(wanted[broker_id], error)
            else:
                errors |= taken.errors
                found += [self._record(one, broker_id) for one in taken.records]
        readable = self._readable(errors)
        self.drained = quiet and not found and readable == self._assigned
        if errors and not found:
            BackOff().pause(self._deadline)  # errors are answered at once, without a wait
        return found

    def _readable(self, errors: dict[Place, ClientError]) -> set[Place]:
        """The partitions that were read; raises if there are none, or if an error stays."""
        readable = {place for place in self._assigned & self._leaders.keys() if place not in errors}
        for error in errors.values():
            if not readable or not _passes(error):
                raise error
        if errors:
            self._leaders.clear()
        return readable

    def _wanted(self) -> dict[int, set[Place]]:
        """Leader → the assigned partitions that it leads."""
        if not self._leaders.keys() >= self._assigned:
            topics = self._client.metadata(self._topics).topics.values()
            self._names |= {topic.topic_id: topic.name for topic in topics if topic.topic_id}
            self._leaders = {
                Place(topic.topic_id, one.partition): one.leader
                for topic in topics
                if topic.topic_id
                for one in topic.partitions.values()
                if one.leader != NO_LEADER
            }
        wanted: dict[int, set[Place]] = {}
        for place in self._assigned & self._leaders.keys():
            wanted.setdefault(self._leaders[place], set()).add(place)
        if not wanted:
            raise BrokerError(ErrorCode.leader_not_available)
        return wanted

    def _take(self, broker_id: int, answer: Struct | ClientError) -> Taken:
        session = self._sessions[broker_id]
        try:
            if isinstance(answer, ClientError):
                raise answer
            raise_error_in(answer)
            taken = session.take(answer)
        except ClientError as error:
            for place in session.sent:
                self._refused(place, error)
            session.reset()
            raise
        except DecodeError as error:
            raise UnreadableAnswerError(
                f"broker {broker_id}: unreadable records: {error}"
            ) from error
        for place, refusal in taken.refused.items():
            self._refused(place, refusal)
        return taken

    def _end_session(self, broker_id: int) -> None:
        session = self._sessions.pop(broker_id)
        if not session.is_open:
            return
        request = session.final()
        try:
            answer = self._client.call(Broker(broker_id), ApiKey.SHARE_ACKNOWLEDGE, request)
            raise_error_in(answer)
        except ClientError as error:
            for place in session.sent:
                self._refused(place, error)
            return
        for topic in answer.responses:
            for p in topic.partitions:
                if (refusal := error_in(p)) is not None:
                    self._refused(Place(topic.topic_id, p.partition_index), refusal)

    def _record(self, acquired: Acquired, broker_id: int) -> ShareRecord:
        place = acquired.place
        name = self._names[place.topic_id]
        return ShareRecord(
            name, place.partition, acquired.record, acquired.delivery_count, broker_id, place
        )

    def _refused(self, place: Place, error: ClientError) -> None:
        name = self._names.get(place.topic_id, str(place.topic_id))
        self._on_refused(TopicPartition(name, place.partition), error)

    def _succeeded(self) -> None:
        self._deadline = Deadline(self._client.settings.deadline_s)
        self._back_off, self._joining = BackOff(), BackOff()


def _passes(error: ClientError) -> bool:
    return isinstance(error, _LOST) or (isinstance(error, BrokerError) and error.code in _PASSES)
