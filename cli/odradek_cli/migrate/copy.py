"""Copies records in transactions, each together with the state of its partitions.

A pass ends when every partition has reached the end that the source had when the pass began. The
transactional id is the migration's own: a second run ends ("fences") a first one that still runs,
and aborts what it left half done.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from odradek_cli.client import about
from odradek_cli.errors import CliError
from odradek_cli.librdkafka import TIMEOUT_S, settings
from odradek_cli.migrate.clusters import MigrationSide
from odradek_cli.migrate.state import (
    PartitionState,
    Place,
    offset_of,
    place_of,
    timestamp_ms,
)
from odradek_protocol.client.admin.groups import committed_offsets

TRANSACTION_RECORDS = 10_000  # and their bytes are bounded by librdkafka's queue
TRANSACTION_S = 2.0
POLL_RECORDS = 2_000
FETCH_DEADLINE_S = 60.0  # without any record

Progress = Callable[[dict[Place, PartitionState]], None]


def migration_id(source: MigrationSide) -> str:
    return f"odradek-migrate-{source.cluster_id}"


def reader(cluster: MigrationSide, group: str) -> Consumer:
    """A consumer whose partitions are assigned by hand; it commits nothing by itself."""
    return Consumer(
        settings(
            cluster.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            enable_partition_eof=True,
            isolation_level="read_committed",
            auto_offset_reset="error",
        )
    )


class Copier:
    """One run's connection to both sides."""

    def __init__(self, source: MigrationSide, destination: MigrationSide, compression: str) -> None:
        self._source, self._destination = source, destination
        self._name = migration_id(source)
        self._state_reader = reader(destination, self._name)
        self._producer = Producer(
            settings(
                destination.bootstrap,
                transactional_id=self._name,
                compression_type=compression,
                linger_ms=20,
                message_max_bytes=100_000_000,
                queue_buffering_max_messages=1_000_000,
            )
        )
        self._failed: KafkaError | None = None
        try:
            self._producer.init_transactions(TIMEOUT_S)
        except KafkaException as error:
            raise CliError(f"destination: {error.args[0].str()}") from error

    def close(self) -> None:
        self._state_reader.close()

    # -- state -------------------------------------------------------------------------------------

    def states(self, places: list[Place]) -> dict[Place, PartitionState]:
        """The state of each partition; a new one starts at the first record of the source.

        A destination that has records without a state was filled by another client: refused.
        """
        if not places:
            return {}
        with about("the state of the migration"):
            committed = committed_offsets(self._destination.client, self._name, require_stable=True)
        wanted = set(places)
        found: dict[Place, PartitionState] = {
            # librdkafka sends the NUL at the end of its C string as part of the metadata.
            place: PartitionState.parse(at.offset, at.metadata.rstrip("\0"))
            for place, at in committed.items()
            if place in wanted
        }
        new = [place for place in places if place not in found]
        ends = self._destination.high_watermarks(new)
        for (topic, partition), end in ends.items():
            if end > 0:
                raise CliError(
                    f"{topic}:{partition} in the destination has records, and no state of a "
                    "migration from this source: delete the topic there, or leave it out"
                )
        starts = self._source.starts(new)
        return {**found, **{place: PartitionState(starts[place]) for place in new}}

    def mark_done(self, states: dict[Place, PartitionState]) -> None:
        self._producer.begin_transaction()
        self._commit(states)

    # -- a pass ------------------------------------------------------------------------------------

    def copy(
        self, states: dict[Place, PartitionState], ends: dict[Place, int], progress: Progress
    ) -> None:
        """Copies until `states`, which it keeps up to date, have reached `ends`."""
        behind = {place for place, end in ends.items() if states[place].position < end}
        if not behind:
            return
        consumer = reader(self._source, self._name)
        try:
            consumer.assign([TopicPartition(t, p, states[t, p].position) for t, p in behind])
            last_progress = time.monotonic()
            while behind:
                moved = self._transaction(consumer, dict(states), ends, behind)
                if moved:
                    states.update(moved)
                    last_progress = time.monotonic()
                    progress(states)
                elif time.monotonic() - last_progress > FETCH_DEADLINE_S:
                    raise CliError(f"the source has sent nothing for {FETCH_DEADLINE_S:.0f} s")
        finally:
            consumer.close()

    def _transaction(
        self,
        consumer: Consumer,
        states: dict[Place, PartitionState],
        ends: dict[Place, int],
        behind: set[Place],
    ) -> dict[Place, PartitionState]:
        """Copies one transaction; returns the new states, which are committed with it."""
        moved: dict[Place, PartitionState] = {}
        count, give_up = 0, time.monotonic() + TRANSACTION_S
        self._producer.begin_transaction()
        while count < TRANSACTION_RECORDS and behind and time.monotonic() < give_up:
            for message in consumer.consume(POLL_RECORDS, timeout=0.2):
                place = place_of(message)
                before = moved.get(place, states[place])
                if (error := message.error()) is None:
                    self._write(message)
                    moved[place] = before.after(message)
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    moved[place] = before.at(offset_of(message))
                else:
                    raise CliError(f"source, {place[0]}:{place[1]}: {error.str()}")
                if moved[place].position >= ends[place]:
                    behind.discard(place)
        self._commit(moved)
        return moved

    def _write(self, message: Message) -> None:
        topic, partition = place_of(message)
        while True:
            try:
                self._producer.produce(
                    topic,
                    message.value(),
                    message.key(),
                    partition=partition,
                    headers=message.headers(),
                    timestamp=timestamp_ms(message),
                    on_delivery=self._delivered,
                )
                self._producer.poll(0)
                return
            except BufferError:  # librdkafka's queue is full
                self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._failed = self._failed or error

    def _commit(self, moved: dict[Place, PartitionState]) -> None:
        """Commits records and state together. An error ends the run: the next one goes on."""
        try:
            offsets = [
                TopicPartition(topic, partition, state.position, state.metadata())
                for (topic, partition), state in moved.items()
            ]
            if offsets:
                group = self._state_reader.consumer_group_metadata()
                self._producer.send_offsets_to_transaction(offsets, group, TIMEOUT_S)
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            failure = self._failed or error.args[0]
            raise CliError(
                f"destination: {failure.str()}; run the command again to continue"
            ) from error
