"""Commands from the metadata log, carried out in order and in slices.

A change of the metadata becomes commands (`commands.py`). Few are carried out at once, many in
slices with the loop's other work in between (`settled`). Partitions whose files are still to be
made wait in `opening.py`, so that a change of leaders does not wait behind ten thousand new logs.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from odradek_broker.log.errors import RETRY_SECONDS, LogDirError
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import BrokerRegistration
from odradek_broker.partition.commands import (
    Command,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
    commands_of,
    commands_of_image,
)
from odradek_broker.partition.hosting import Hosting
from odradek_broker.partition.opening import Opening
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.rate_limited_log import RateLimitedLog
from odradek_broker.runtime.slices import Slices
from odradek_broker.runtime.tasks import Scheduler, Threads
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.ids import BrokerId

logger = logging.getLogger(__name__)


class CommandQueue:
    def __init__(
        self, hosting: Hosting, clock: Clock, scheduler: Scheduler, threads: Threads
    ) -> None:
        self._hosting = hosting
        self._hosted = hosting.hosted
        self._clock = clock
        self._scheduler = scheduler
        self.refused_commands = 0
        self._brokers: Mapping[BrokerId, BrokerRegistration] = {}  # as `peers` has them
        self._controller_epoch = -1
        self._awaited_epoch: int | None = None  # see await_registration
        self._limited = RateLimitedLog(logger)
        self._slices = Slices(clock, scheduler)
        self.opening = Opening(hosting.logs, hosting.config_of, threads, self._slices, self._made)

    def await_registration(self, broker_epoch: int) -> None:
        """Take no role before the metadata says that this broker is registered with this epoch.

        Older metadata is about the process before this one. It may have led alone; taking up that
        role again would commit records that no other replica has.
        Call it before the first `apply` (with a number that no broker epoch reaches, if the
        registration is still to come) and again when the controller has given the epoch.
        """
        self._awaited_epoch = broker_epoch
        self._take_roles_if_registered()

    def apply(self, delta: MetadataDelta, controller_epoch: int = 0) -> None:
        """Bring this broker in line with the controller's decisions.

        A little work is done when this returns, much is done in slices (`settled`); later
        changes are carried out after it.
        """
        self._hosted.image = delta.after
        if self._awaited_epoch is None:
            commands = commands_of(delta, self._hosted.node_id, controller_epoch)
            self._slices.add(self._carry_out(commands))
            return
        self._controller_epoch = max(self._controller_epoch, controller_epoch)
        self._take_roles_if_registered()

    def _take_roles_if_registered(self) -> None:
        registration = self._hosted.image.brokers.get(self._hosted.node_id)
        if registration is None or registration.epoch < (self._awaited_epoch or 0):
            return
        self._awaited_epoch = None
        commands = commands_of_image(
            self._hosted.image, self._hosted.node_id, self._controller_epoch
        )
        self._slices.add(self._take_roles(commands))

    def _take_roles(self, commands: Iterable[Command | None]) -> Iterator[None]:
        yield from self._carry_out(commands)
        self._hosting.clear_strays()

    @property
    def settled(self) -> bool:
        """Every change that was given to `apply` is carried out."""
        return self._slices.idle and self.opening.idle

    def is_opening(self, topic: str) -> bool:
        """Whether partitions of a topic that is to be hosted here are not open yet."""
        if self.opening.waits(topic):
            return True
        known = self._hosted.image.topics.get(topic)
        if known is None or self._slices.idle:
            return False
        return any(
            self._hosted.node_id in partition.replicas
            and (topic, index) not in self._hosted.by_name
            for index, partition in known.partitions.items()
        )

    def stop(self) -> None:
        """The broker stops: commands that are still queued are carried out at its next start."""
        self.opening.close()
        self._slices.close()

    def _carry_out(self, commands: Iterable[Command | None]) -> Iterator[None]:
        for command in commands:
            if command is None:
                pass
            elif isinstance(command, UpdateMetadata):
                if self._may_carry_out(command):
                    yield from self._update_metadata(command)
            else:
                self._try(command, self.execute)
            yield None

    def _try(self, command: Command, action: "Callable[[Any], None]") -> None:
        """A failure in one partition must not keep the others from their roles."""
        try:
            action(command)
        except KafkaError as error:
            self._not_carried_out(command, error)
        except Exception:
            logger.exception("%s failed; this is a bug in Odradek", type(command).__name__)

    def _not_carried_out(self, command: Command, error: KafkaError) -> None:
        what = type(command).__name__
        if not isinstance(command, UpdateMetadata):
            what += f" of {command.topic_partition}"
        key = error.path if isinstance(error, LogDirError) else type(command).__name__
        self._limited.error(key, self._clock.monotonic_ms(), "%s: %s", what, error)
        if isinstance(error, LogDirError):
            self._hosting.directories.failed(error)
            if not error.offline and isinstance(command, LeaderAndIsr):
                self._scheduler.call_later(RETRY_SECONDS, self._retry, command)

    def _retry(self, command: LeaderAndIsr) -> None:
        """Uses the newest metadata: the partition may have moved or been deleted."""
        name, index = command.topic_partition
        topic = self._hosted.image.topics.get(name)
        if topic is None or topic.id != command.topic_id:
            return
        registration = topic.partitions.get(index)
        if registration is not None and self._hosted.node_id in registration.replicas:
            epoch = max(command.controller_epoch, self._controller_epoch)
            again = replace(command, controller_epoch=epoch, registration=registration)
            self._slices.add(self._carry_out([again]))

    def execute(self, command: Command) -> None:
        """Carry out one command, unless one of a newer controller came before it."""
        if not self._may_carry_out(command):
            return
        match command:
            case StopReplica():
                self.opening.cancel(command)
                self._hosting.stop_replica(command)
            case UpdateMetadata():
                for _ in self._update_metadata(command):
                    pass
            case LeaderAndIsr():
                self._leader_and_isr(command)

    def _may_carry_out(self, command: Command) -> bool:
        if command.controller_epoch < self._controller_epoch:
            self.refused_commands += 1
            logger.warning(
                "%s of controller epoch %d refused: epoch %d is known already",
                type(command).__name__,
                command.controller_epoch,
                self._controller_epoch,
            )
            return False
        self._controller_epoch = command.controller_epoch
        return True

    def _update_metadata(self, command: UpdateMetadata) -> Iterator[None]:
        image = command.image
        for topic in command.topics:
            self._hosting.reconfigure(image, topic)
            yield None
        if image.brokers is self._brokers:
            return
        self._brokers = image.brokers
        peers = self._hosting.peers
        peers.registered = {broker.id: broker.epoch for broker in image.brokers.values()}
        peers.eligible = frozenset(broker.id for broker in image.usable_brokers())
        peers.broker_epoch = peers.registered.get(self._hosted.node_id, -1)
        if self._hosted.replication is not None:
            self._hosted.replication.update_metadata(image)
        yield from self._hosting.writes.check_isrs()

    def _leader_and_isr(self, command: LeaderAndIsr) -> None:
        if command.topic_partition not in self._hosted.by_name and self._is_for_later(command):
            self.opening.put(command)
        else:
            self._hosting.open_or_change(command)

    def _is_for_later(self, command: LeaderAndIsr) -> bool:
        """Many commands are queued and this one needs new files, or an earlier one for it waits."""
        topic_partition = command.topic_partition
        return topic_partition in self.opening or (
            self._slices.continued and topic_partition not in self._hosting.logs.logs
        )

    def _made(self, command: LeaderAndIsr, error: Exception | None) -> None:
        """The files of a partition were made, or could not be made."""
        if error is None:
            self._try(command, self._hosting.open_or_change)
            return
        self._hosted.unopened.add(command.topic_partition)

        def fail(_: LeaderAndIsr) -> None:
            raise error

        self._try(command, fail)

    def check_isrs(self) -> None:
        self._slices.add(self._hosting.writes.check_isrs())
