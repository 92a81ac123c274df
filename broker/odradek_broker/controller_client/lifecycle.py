"""Registration, heartbeats and controlled shutdown of this broker.

    epoch = await lifecycle.register(listeners)     the broker is registered, and fenced
    lifecycle.start()                               starts the heartbeats
    await lifecycle.unfence()                       the logs are loaded: serve clients
    await lifecycle.shut_down(timeout_ms)           others have taken over its partitions

Runs on every broker, including that of the active controller. Each start of the process is a new
incarnation. Its broker epoch is the offset of its registration in the metadata log; requests with
an older epoch are refused. If a heartbeat is refused because the broker was unregistered, it
registers again.

All times are monotonic. A broker that sends no heartbeat for `broker.session.timeout.ms` is fenced
by the controller: its partitions get other leaders, until its next heartbeat.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from odradek_broker.controller_client.channel import ControllerCalls
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.features import SUPPORTED_FEATURES
from odradek_broker.metadata.image import BrokerRegistration
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.runtime.listeners import SECURITY_PROTOCOLS, Listener
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

BROKER_REGISTRATION, REGISTRATION_VERSION = 62, 4
BROKER_HEARTBEAT, HEARTBEAT_VERSION = 63, 1
RETRY_SECONDS = 0.1

# Errors that are not worth a retry, with the reason for the user.
_FATAL = {
    ErrorCode.inconsistent_cluster_id: "the controller belongs to another cluster",
    ErrorCode.invalid_registration: "the controller refuses this registration",
    ErrorCode.unsupported_version: "this version lacks a feature that the cluster uses",
}
_UNKNOWN_BROKER = (ErrorCode.stale_broker_epoch, ErrorCode.broker_id_not_registered)


class RegistrationError(Exception):
    """The controller refuses this broker for good; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One start of the process of a broker."""

    node_id: BrokerId
    cluster_id: str
    id: UUID
    previous_broker_epoch: int  # of the last clean shutdown; -1 if the last stop was not clean


@dataclass(frozen=True, slots=True)
class LogDirectories:
    """The ids of this broker's log directories; which of them are offline changes over time."""

    ids: Callable[[], Sequence[UUID]]
    offline_ids: Callable[[], Sequence[UUID]]


class BrokerLifecycle:
    def __init__(
        self,
        incarnation: Incarnation,
        settings: Settings,
        controller: ControllerCalls,
        metadata: MetadataPublisher,
        directories: LogDirectories,
        *,
        applied_offset: Callable[[], Offset],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.node_id = incarnation.node_id
        self.broker_epoch = -1
        self._incarnation = incarnation
        self._settings = settings
        self._controller = controller
        self._metadata = metadata
        self._directories = directories
        self._applied_offset = applied_offset
        self._on_failure = on_failure
        self._listeners: Sequence[Listener] = ()
        self.unheard_ms = 0.0  # time without a response from a controller
        self._ready = False
        self._aside = False
        self._wants_shut_down = False
        self._fenced = asyncio.Event()  # as requested, in the last heartbeat response
        self._may_shut_down = asyncio.Event()
        self._changed = asyncio.Event()  # this broker's registration in the metadata
        self._wake = asyncio.Event()  # send the next heartbeat at once
        self._task: asyncio.Task[None] | None = None
        metadata.subscribe(self._look)

    # -- life cycle -----------------------------------------------------------------------------

    async def register(self, listeners: Sequence[Listener]) -> int:
        """Retries until this broker is registered and its own metadata shows it."""
        self._listeners = listeners
        self.broker_epoch = await self._register()
        await self._until(lambda own: own is not None and own.epoch == self.broker_epoch)
        return self.broker_epoch

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def unfence(self) -> None:
        """Asks to be unfenced; returns when this broker's metadata shows it."""
        self._ready = True
        self._wake.set()
        await self._until(lambda own: own is not None and not own.fenced)

    def step_aside(self, wanted: bool) -> None:
        """Asks to be fenced, so that others lead, or to be unfenced again; may be repeated."""
        if wanted is not self._aside:
            self._aside = wanted
            self._fenced.clear()
            self._wake.set()

    def beat_now(self) -> None:
        """Sends a heartbeat at once, because its content has changed."""
        self._wake.set()

    async def fence(self, timeout_ms: float) -> bool:
        """Asks to be fenced; whether that happened within the timeout."""
        self.step_aside(True)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._fenced.wait()
        except TimeoutError:
            return False
        return True

    async def shut_down(self, timeout_ms: float) -> None:
        """A controlled shutdown: waits until others lead its partitions, or for the timeout."""
        self._wants_shut_down = True
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_ms / 1000):  # wait_for may lose a cancellation
                await self._may_shut_down.wait()
        except TimeoutError:
            logger.warning(
                "the controlled shutdown did not finish within %d ms: stopping", timeout_ms
            )

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def cut_off(self) -> bool:
        """Whether no controller responded for a session: others may lead its partitions by now."""
        return self.unheard_ms >= self._settings.int("broker.session.timeout.ms")

    # -- registration -----------------------------------------------------------------------------

    async def _register(self) -> int:
        loop = asyncio.get_running_loop()
        session_seconds = self._settings.int("broker.session.timeout.ms") / 1000
        give_up_duplicate = loop.time() + 2 * session_seconds
        while True:
            try:
                answer = await self._controller.call(
                    BROKER_REGISTRATION,
                    REGISTRATION_VERSION,
                    self._registration(),
                    self._settings.int("controller.quorum.request.timeout.ms"),
                )
            except PeerUnavailable as error:
                logger.debug("not registered yet: %s", error)
                continue
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.none:
                logger.info("registered with broker epoch %d", answer.broker_epoch)
                return int(answer.broker_epoch)
            if code in _FATAL:
                raise RegistrationError(f"node {self.node_id}: {_FATAL[code]} ({code.name})")
            if code is ErrorCode.duplicate_broker_registration and (
                loop.time() > give_up_duplicate
            ):
                raise RegistrationError(f"node.id {self.node_id} is in use by another live broker")
            logger.info("registration refused for now: %s", code.name)
            await asyncio.sleep(RETRY_SECONDS)

    def _registration(self) -> Struct:
        return Struct(
            broker_id=self.node_id,
            cluster_id=self._incarnation.cluster_id,
            incarnation_id=self._incarnation.id,
            listeners=[
                Struct(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=SECURITY_PROTOCOLS.index(listener.security_protocol),
                )
                for listener in self._listeners
            ],
            features=[
                Struct(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in SUPPORTED_FEATURES
            ],
            rack=self._settings.optional_str("broker.rack"),
            is_migrating_zk_broker=False,
            log_dirs=list(self._directories.ids()),
            previous_broker_epoch=self._incarnation.previous_broker_epoch,
        )

    # -- heartbeats -------------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                sent_at = loop.time()
                self._wake.clear()
                await self._beat()
                interval = self._settings.int("broker.heartbeat.interval.ms") / 1000
                await self._pause(sent_at + interval - loop.time())
        except RegistrationError as error:
            self._on_failure(error)

    async def _beat(self) -> None:
        request = Struct(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._applied_offset() - 1,
            want_fence=not self._ready or self._aside,
            want_shut_down=self._wants_shut_down,
            offline_log_dirs=list(self._directories.offline_ids()),
        )
        # Well within a session, so that there is time for a retry.
        timeout_ms = self._settings.int("broker.session.timeout.ms") / 3
        try:
            answer = await self._controller.call(
                BROKER_HEARTBEAT, HEARTBEAT_VERSION, request, timeout_ms
            )
        except PeerUnavailable as error:
            logger.info("heartbeat failed: %s", error)
            self._unheard(timeout_ms)
            return
        self.unheard_ms = 0.0
        code = ErrorCode(answer.error_code)
        if code in _UNKNOWN_BROKER:
            logger.warning(
                "this broker is not registered any more (%s): registering again", code.name
            )
            self.broker_epoch = await self._register()
        elif code is not ErrorCode.none:
            logger.warning("heartbeat refused: %s", code.name)
        else:
            if answer.is_fenced and request.want_fence:
                self._fenced.set()
            if answer.should_shut_down:
                self._may_shut_down.set()

    def _unheard(self, timeout_ms: float) -> None:
        """No controller responded. While shutting down, do not wait long: if the whole cluster
        stops, none will."""
        self.unheard_ms += timeout_ms
        limit_ms = self._settings.int("controller.quorum.fetch.timeout.ms")
        limit_ms += 2 * self._settings.int("controller.quorum.election.timeout.ms")
        if self._wants_shut_down and self.unheard_ms > limit_ms:
            logger.warning("no controller responds to the controlled shutdown: stopping")
            self._may_shut_down.set()

    async def _pause(self, seconds: float) -> None:
        """Waits until the next heartbeat is due, or is requested at once."""
        # Not wait_for: it swallows a cancellation that comes together with what it waits for
        # (Python 3.11), and this broker would send heartbeats for ever instead of stopping.
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()

    # -- this broker's registration in the metadata ---------------------------------------------

    def _look(self, delta: MetadataDelta, _: LeaderEpoch) -> None:
        if self.node_id in delta.changed_brokers:
            self._changed.set()
            # It has applied its own registration: report that at once.
            self._wake.set()

    async def _until(self, condition: Callable[[BrokerRegistration | None], bool]) -> None:
        while not condition(self._metadata.image.brokers.get(self.node_id)):
            self._changed.clear()
            await self._changed.wait()
