"""A broker's life: starts its services in order, and stops them.

`wiring.py` builds the services; `main.py` runs the broker as a process. The steps of a start, in
the order in which they may fail: listeners bound (a port in use is reported at once), quorum
joined, broker registered, logs loaded or recovered, partitions hosted, broker unfenced. Then
clients are served, and one JSON line on stdout says `ready`.
"""

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek_broker.admin_front import AdminFront, StartError
from odradek_broker.controller_client.lifecycle import RegistrationError
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.housekeeping import RETENTION_LOGS_PER_TICK
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE
from odradek_broker.model.log_config import LogConfig
from odradek_broker.network.server import bound_socket
from odradek_broker.raft.values import RaftEndpoint
from odradek_broker.runtime.collector import ShortPauses
from odradek_broker.runtime.descriptors import CONNECTIONS_MIN
from odradek_broker.runtime.event_loop import PollerLoop
from odradek_broker.runtime.listeners import Listener
from odradek_broker.runtime.settings import Settings
from odradek_broker.security.service import unprotected_listeners
from odradek_broker.storage import StorageFailedError
from odradek_broker.wiring import Services
from odradek_protocol.ids import TopicPartition

if TYPE_CHECKING:
    from odradek_broker.testing.control import Control
    from odradek_broker.testing.mode import TestingMode

logger = logging.getLogger(__name__)

# A step of the start that takes longer brings up /readyz first, so that it can say why.
SLOW_START_SECONDS = 0.5
DRAIN_SECONDS = 5.0
# Without a disk hardly any request can still succeed; clients should find another broker soon.
DRAIN_WITHOUT_DISK_SECONDS = 0.2
HOUSEKEEPING_SECONDS = 1.0
SETTLED_CHECK_SECONDS = 0.01


class Broker:
    """One running broker. `start` returns when clients are served; `stop` leaves clean logs."""

    def __init__(
        self,
        settings: Settings,
        loop: PollerLoop,
        front: AdminFront,
        testing: "TestingMode | None" = None,
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._started_at = time.monotonic()
        self._front = front
        self._readiness = front.readiness
        # Ends the process: its exception is the reason. It never has a result.
        self.failure: asyncio.Future[None] = loop.create_future()
        self._services = Services(settings, loop, front.readiness, self._failed, testing)
        self._collector = ShortPauses()
        self._tasks: list[asyncio.Task[None]] = []
        self._registered = False
        self._testing = testing
        self._control: Control | None = None

    def _failed(self, error: Exception) -> None:
        """The process must not continue."""
        if not self.failure.done():
            known = isinstance(error, StorageFailedError)
            self.failure.set_exception(error if known else StartError(str(error)))
            # retrieve it, or asyncio logs an exception that was never retrieved
            self.failure.exception()

    # --- start ---------------------------------------------------------------------------

    async def start(self) -> None:
        services = self._services
        self._log_limits()
        self._warn_unprotected()
        self._collector.install()
        ports = self._bind_listeners()
        advertised = self._settings.listeners.advertise(ports)
        services.server.start_accepting()  # only for other brokers, until clients can be served
        await services.quorum.start(self._quorum_endpoints(advertised))
        broker_epoch = await self._register(advertised)
        await self._load_logs()
        await services.storage.look()
        self._host_partitions(broker_epoch)
        await self._until_settled(float("inf"))
        services.context.serves_clients = True
        # Before the broker is unfenced: if it waits for disk space, retention frees some.
        self._tasks.append(asyncio.create_task(self._housekeeping()))
        self._tasks.append(asyncio.create_task(services.storage.run()))
        self._tasks.append(asyncio.create_task(services.security.run()))
        await self._unfence()
        services.lag.start()
        services.cleaner.start()
        self._tasks.append(asyncio.create_task(services.context.log_ends.run()))
        self._readiness.done("start")
        await self._start_control()
        self._announce(ports)
        await self._front.start()
        self._front.attach(services.context)
        self._collector.set_aside()

    def _log_limits(self) -> None:
        descriptors = self._services.descriptors
        logger.info(
            "accepts up to %d connections: %d file descriptors (ulimit -n), of which %d are "
            "reserved for storage, other brokers and the admin listener",
            self._services.server.connections_max,
            descriptors.limit,
            descriptors.kept,
        )
        if descriptors.connections <= CONNECTIONS_MIN:
            logger.warning(
                "%d file descriptors are too few for a broker: raise ulimit -n", descriptors.limit
            )

    @staticmethod
    def check_listeners(settings: Settings) -> None:
        """Fails if an address is in use: before the log directories of a new broker are made."""
        for listener in settings.listeners.bound:
            if listener.port:
                try:
                    bound_socket(listener).close()
                except OSError as error:
                    raise _cannot_bind(listener, error) from error

    def _warn_unprotected(self) -> None:
        found = unprotected_listeners(self._settings, self._services.security)
        if found:
            logger.warning(
                "anyone who reaches %s may read and change everything: it has no authentication "
                "(listener.security.protocol.map, ssl.client.auth)",
                " and ".join(found),
            )

    def _bind_listeners(self) -> dict[str, int]:
        ports = {}
        for listener in self._settings.listeners.bound:
            try:
                _, ports[listener.name] = self._services.server.bind(listener)
            except OSError as error:
                raise _cannot_bind(listener, error) from error
        return ports

    def _quorum_endpoints(self, advertised: Sequence[Listener]) -> tuple[RaftEndpoint, ...]:
        """Where other brokers reach this one; `controller.quorum.voters` must agree."""
        settings = self._settings
        found = {listener.name: listener for listener in advertised}
        reached = [found[name] for name in settings.listeners.to_quorum]
        own = reached[0]
        configured = settings.quorum_voters.get(settings.node_id)
        if configured is not None and configured.port != own.port:
            raise StartError(
                f"controller.quorum.voters says that node {settings.node_id} is at {configured}, "
                f"but its listener for the quorum is {own}"
            )
        return tuple(RaftEndpoint(one.name, one.host, one.port) for one in reached)

    async def _register(self, advertised: Sequence[Listener]) -> int:
        """Register with the controller, which may have to be elected first."""
        services = self._services
        registering = asyncio.ensure_future(services.lifecycle.register(advertised))
        try:
            while True:
                await asyncio.wait({registering}, timeout=SLOW_START_SECONDS)
                if registering.done():
                    break
                self._readiness.wait_for("quorum", services.quorum.waits_for)
                await self._front.start()
            broker_epoch = registering.result()
        except RegistrationError as error:
            raise StartError(str(error)) from error
        finally:
            registering.cancel()
        self._readiness.done("quorum")
        self._registered = True
        services.security.metadata_is_current()
        services.lifecycle.start()
        return broker_epoch

    async def _load_logs(self) -> None:
        image = self._services.metadata.image

        def config_of(topic_partition: TopicPartition) -> LogConfig:
            return self._settings.log_config(image.topic_config(topic_partition.topic))

        def report(text: str) -> None:
            self._loop.call_soon_threadsafe(self._readiness.wait_for, "recovery", text)

        load = self._services.logs.load
        loading = asyncio.ensure_future(asyncio.to_thread(load, report, config_of))
        try:
            await asyncio.wait({loading}, timeout=SLOW_START_SECONDS)
            if not loading.done():
                await self._front.start()
            await asyncio.shield(loading)
        finally:
            await asyncio.wait({loading})  # its threads cannot be stopped half-way
        self._readiness.done("recovery")

    def _host_partitions(self, broker_epoch: int) -> None:
        services = self._services
        metadata, partitions = services.metadata, services.partitions
        partitions.await_registration(broker_epoch)
        everything = MetadataDelta.between(EMPTY_IMAGE, metadata.image)
        partitions.apply(everything, metadata.controller_epoch)
        metadata.subscribe(partitions.apply)
        metadata.subscribe(self._reconfigure)
        services.transactions.start(services.marker_sender)
        metadata.subscribe(services.transactions.shards.metadata_changed)
        services.groups.coordinator.start()
        metadata.subscribe(services.groups.coordinator.metadata_changed)
        services.share_coordinator.start()
        metadata.subscribe(services.share_coordinator.shards.metadata_changed)
        services.replication.start()
        partitions.start_timers()

    async def _until_settled(self, seconds: float) -> None:
        """Until this broker leads and follows every partition that the metadata assigns to it."""
        give_up = self._loop.time() + seconds
        while not self._services.partitions.settled and self._loop.time() < give_up:
            await asyncio.sleep(SETTLED_CHECK_SECONDS)

    async def _unfence(self) -> None:
        """Wait until the controller unfences this broker; if that takes long, /readyz goes up."""
        unfencing = asyncio.ensure_future(self._services.lifecycle.unfence())
        try:
            await asyncio.wait({unfencing}, timeout=SLOW_START_SECONDS)
            if not unfencing.done():
                await self._front.start()
            await unfencing
        finally:
            unfencing.cancel()

    def _announce(self, ports: dict[str, int]) -> None:
        hosts = {
            listener.name: f"{listener.host or '0.0.0.0'}:{ports[listener.name]}"
            for listener in self._settings.listeners.bound
        }
        line = {
            "event": "ready",
            "node_id": self._services.node_id,
            "cluster_id": self._services.context.cluster_id,
            "listeners": hosts,
            "admin": self._front.address,
            "startup_ms": round((time.monotonic() - self._started_at) * 1000),
        }
        print(json.dumps(line), flush=True)

    # --- while it runs -------------------------------------------------------------------

    def _reconfigure(self, delta: MetadataDelta, _: int) -> None:
        """Services that keep their settings apply a change; all others read them each time."""
        if delta.broker_config_changed(self._services.node_id):
            self._services.cleaner.reconfigure()
            self._services.security.reconfigure()

    async def _housekeeping(self) -> None:
        """Retention, flushes, checkpoints: decided on the loop, carried out in a thread."""
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            await self._tick()
            self._report_isolation()

    async def _tick(self) -> None:
        services = self._services
        for job in services.logs.tick(services.records_clock.now_ms()):
            try:
                await asyncio.to_thread(job)
            except LogDirError as error:
                if not error.offline:  # else it was logged when it failed
                    logger.warning("%s", error)

    def _report_isolation(self) -> None:
        """Not ready without a controller: other brokers may lead this one's partitions by now."""
        lifecycle = self._services.lifecycle
        if lifecycle.cut_off:
            silent_s = lifecycle.unheard_ms / 1000
            reason = f"no controller has answered this broker for {silent_s:.0f} s"
            self._readiness.wait_for("isolated", reason)
        else:
            self._readiness.done("isolated")

    # --- testing mode --------------------------------------------------------------------

    async def _start_control(self) -> None:
        if self._testing is None:
            return
        from odradek_broker.testing.control import Control

        self._control = Control(
            self._testing, advance=self._advance, look_at_disks=self._services.storage.look
        )
        await self._control.start()

    async def _advance(self, ms: int) -> None:
        """Advances the clock of logs, groups and transactions; work that became due is done on
        return.

        Nothing is due at the first tick of a broker, which only starts the intervals.
        """
        assert self._testing is not None
        services = self._services
        await self._tick()
        self._testing.clock.advance(ms)
        services.groups.coordinator.check_timers()
        services.share_coordinator.shards.check_timers()
        services.shares.check_locks()
        await services.transactions.check_timeouts()
        for _ in range(1 + len(services.logs.logs) // RETENTION_LOGS_PER_TICK):
            await self._tick()

    # --- stop ----------------------------------------------------------------------------

    async def stop(self) -> None:
        """May follow a start that failed half-way: every step also works if its service never
        started.
        """
        self._readiness.wait_for("stop", "the broker is stopping")
        ended_by = self.failure.exception() if self.failure.done() else None
        in_order = ended_by is None or (
            isinstance(ended_by, StorageFailedError) and ended_by.in_order
        )
        if self._registered and in_order:
            await self._hand_over()
        await self._finish_requests(DRAIN_SECONDS if in_order else DRAIN_WITHOUT_DISK_SECONDS)
        await self._stop_tasks()
        await self._leave_cluster()
        await self._close_logs()
        self._collector.remove()
        await self._front.stop()
        logger.info("stopped")

    async def _hand_over(self) -> None:
        """Let other brokers, if there are any, lead the partitions and the quorum."""
        settings, services = self._settings, self._services
        brokers = services.metadata.image.usable_brokers()
        others = [broker.id for broker in brokers if broker.id != services.node_id]
        if others and settings.bool("controlled.shutdown.enable"):
            timeout_ms = settings.int("odradek.controlled.shutdown.timeout.ms")
            await services.lifecycle.shut_down(timeout_ms)
        await services.quorum.resign(settings.int("controller.quorum.election.timeout.ms"))

    async def _finish_requests(self, drain_seconds: float) -> None:
        services = self._services
        if self._testing is not None:
            self._testing.faults.heal()
        if self._control is not None:
            self._control.stop()
        services.server.stop_accepting()
        services.lag.stop()
        services.partitions.release_fetches()
        services.shares.close()
        services.groups.coordinator.close()
        await services.server.drain(drain_seconds)
        await self._until_settled(drain_seconds)
        services.partitions.stop_commands()

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._services.transactions.close()
        self._services.share_coordinator.close()
        self._services.verifier.close()

    async def _leave_cluster(self) -> None:
        """Close the connections to other brokers, and stop what uses them."""
        services = self._services
        services.verification_calls.close()
        services.marker_calls.close()
        services.share_calls.close()
        services.replication.close()
        await services.lifecycle.stop()
        services.seat.stop()
        services.quorum.stop()
        for channel in services.channels:
            channel.close()

    async def _close_logs(self) -> None:
        services = self._services
        await asyncio.to_thread(services.cleaner.stop)
        await asyncio.to_thread(services.logs.close, services.lifecycle.broker_epoch)


def _cannot_bind(listener: Listener, error: OSError) -> StartError:
    return StartError(f"listeners: cannot bind {listener}: {error.strerror}")
