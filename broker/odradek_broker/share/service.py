"""The share partitions of the partitions that this broker leads, and the sessions of members.

Called by the handlers ShareFetch and ShareAcknowledge. A share partition is loaded from the share
coordinator when a member first fetches it, and dropped when its group has no session here any more,
or this broker does not lead it any more.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from itertools import count
from typing import NamedTuple

from odradek_broker.partition.partition import Partition
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.settings import Settings
from odradek_broker.share.config import ShareConfig, share_config
from odradek_broker.share.held import HeldPartition, Persister
from odradek_broker.share.metrics import ShareMetrics
from odradek_broker.share.sessions import ShareSession, ShareSessions
from odradek_broker.share.share_partition import (
    Acknowledged,
    Acquired,
    SharePartition,
    Wanted,
)
from odradek_broker.share.state import UNINITIALIZED, Key
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import Offset


class Fetched(NamedTuple):
    key: Key
    records: bytes
    acquired: list[Acquired]


class ShareService:
    def __init__(
        self, settings: Settings, partitions: PartitionService, persister: Persister, clock: Clock
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._persister = persister
        self._clock = clock
        self._held: dict[Key, HeldPartition] = {}
        self._loading: dict[Key, asyncio.Task[HeldPartition]] = {}
        self._waiting: set[_Wait] = set()
        self._closed = False
        self.sessions = ShareSessions()
        self.metrics = ShareMetrics()

    def config(self, group_id: str) -> ShareConfig:
        return share_config(self._settings, self._partitions.image, group_id)

    def close(self) -> None:
        """The broker stops: fetches that wait are answered."""
        self._closed = True
        for wait in list(self._waiting):
            wait.wake()
        for held in self._held.values():
            held.close()

    def held(self) -> Collection[HeldPartition]:
        """For metrics and tests."""
        return self._held.values()

    def check_locks(self) -> None:
        """The clock jumped (in tests): frees locks that have timed out now."""
        for held in list(self._held.values()):
            held.check_locks()

    # --- sessions ---------------------------------------------------------------------------------

    def open_session(self, group_id: str, member_id: str) -> ShareSession:
        limit = self._settings.int("group.share.max.share.sessions")
        return self.sessions.open(group_id, member_id, limit)

    def close_session(self, session: ShareSession) -> None:
        """Frees the locks of its member; without any session the group's state is dropped here."""
        if not self.sessions.close(session):
            return
        last = not self.sessions.has_group(session.group_id)
        for key, held in list(self._held.items()):
            if key.group_id != session.group_id:
                continue
            held.release(session.member_id)
            if last and held.is_idle:
                held.close()
                del self._held[key]

    # --- partitions -------------------------------------------------------------------------------

    async def get(self, key: Key) -> HeldPartition:
        """Loads it if needed; KafkaError if this broker does not lead it, or it has no state."""
        held = self._held.get(key)
        if held is not None and held.is_valid:
            return held
        if held is not None:
            held.close()
            del self._held[key]
        partition = self._led(key)
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.ensure_future(self._load(key, partition))
            loading.add_done_callback(lambda _: self._loading.pop(key, None))
        return await asyncio.shield(loading)

    def _led(self, key: Key) -> Partition:
        topic = key.topic_id.bytes
        partition = self._partitions.by_id.get((topic, key.partition))
        if partition is None:
            raise KafkaError(self._partitions.why_missing(topic, key.partition))
        partition.led_here()
        return partition

    async def _load(self, key: Key, partition: Partition) -> HeldPartition:
        epoch = partition.leader_epoch
        state = await self._persister.read(key, epoch)
        start = state.start_offset
        if start == UNINITIALIZED:
            start = self._first_offset(key.group_id, partition)
        if self._closed or partition.leading is None or partition.leader_epoch != epoch:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        share = SharePartition(start, state.state_epoch, state.batches)
        held = HeldPartition(
            key,
            partition,
            share,
            self._persister,
            self._clock,
            lambda: self.config(key.group_id),
            self.metrics,
        )
        self._held[key] = held
        return held

    def _first_offset(self, group_id: str, partition: Partition) -> Offset:
        """The start offset of a group that has not read this partition: share.auto.offset.reset."""
        config = self.config(group_id)
        if config.auto_offset_reset == "earliest":
            return partition.log.log_start_offset
        age_ms = config.reset_age_ms
        if age_ms is not None:
            found = partition.log.offset_for_timestamp(self._clock.now_ms() - age_ms)
            if found is not None and found.offset < partition.high_watermark:
                return found.offset
        return partition.high_watermark

    # --- requests ---------------------------------------------------------------------------------

    async def acknowledge(self, key: Key, member_id: str, batches: list[Acknowledged]) -> None:
        held = await self.get(key)
        limits = self.config(key.group_id).limits
        if not limits.renew and any(RENEW in batch.types for batch in batches):
            raise KafkaError(ErrorCode.invalid_record_state, RENEW_DISABLED)
        await held.acknowledge(member_id, batches)

    async def fetch(
        self, member_id: str, keys: list[Key], wanted: Wanted, bytes_max: int, wait: "Wait"
    ) -> tuple[list[Fetched], dict[Key, KafkaError]]:
        """Records of these partitions, in this order, and errors of others; waits if there are
        none. Loading a partition may take as long as the share coordinator takes."""
        give_up_ms = self._clock.monotonic_ms() + wait.max_ms
        while True:
            errors: dict[Key, KafkaError] = {}
            ready: list[HeldPartition] = []
            for key in keys:
                try:
                    ready.append(await self.get(key))
                except KafkaError as error:
                    errors[key] = error
            if not wait.is_wanted():
                return [], errors
            found = self._acquire(member_id, ready, wanted, bytes_max)
            left_ms = give_up_ms - self._clock.monotonic_ms()
            if found or errors or left_ms <= 0 or self._closed:
                return found, errors
            await self._wait(ready, left_ms)

    def _acquire(
        self, member_id: str, ready: Iterable[HeldPartition], wanted: Wanted, bytes_max: int
    ) -> list[Fetched]:
        found: list[Fetched] = []
        records_left, bytes_left = wanted.records_max, bytes_max
        for held in ready:
            if records_left <= 0 or (found and bytes_left <= 0):
                break
            part = wanted._replace(records_max=records_left)
            records, acquired = held.acquire(member_id, part, bytes_left, whole=not found)
            if acquired:
                found.append(Fetched(held.key, records, acquired))
                bytes_left -= len(records)
                records_left -= sum(one.last - one.first + 1 for one in acquired)
        return found

    async def _wait(self, ready: list[HeldPartition], left_ms: float) -> None:
        """Waits until a partition has new records, locks are freed, or the time is over."""
        wait = _Wait(ready)
        self._waiting.add(wait)
        timer = asyncio.get_running_loop().call_later(left_ms / 1000, wait.wake)
        try:
            await wait.woken
        finally:
            timer.cancel()
            wait.stop()
            self._waiting.discard(wait)


RENEW = 4
RENEW_DISABLED = "Renewing acquisition locks is not enabled for the group."


class Wait(NamedTuple):
    max_ms: float
    is_wanted: Callable[[], bool] = lambda: True  # False: the session is closed


class _Wait:
    """A fetch that waits; a listener of its partitions. They are kept in sets: numbered, so that
    waiting fetches are woken in the same order in every run of a simulation."""

    _numbers = count()

    def __init__(self, ready: list[HeldPartition]) -> None:
        self._number = next(self._numbers)
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready = ready
        for held in ready:
            held.partition.subscribe(self, follower=False)
            held.wait(self.wake)

    def __hash__(self) -> int:
        return self._number

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)

    def on_progress(self, partitions: object) -> None:  # noqa: ARG002
        self.wake()

    def stop(self) -> None:
        for held in self._ready:
            held.partition.unsubscribe(self)
            held.stop_waiting(self.wake)
