"""Connects the controller of this node to the quorum: elections, and timers for periodic work.

While the controller is active, this module also manages the voters: a growing cluster gets up to
three, one change at a time (`voters.py` decides, the quorum carries it out).
"""

import asyncio
import logging

from odradek_broker.controller.service import ControllerService
from odradek_broker.controller.voters import Add
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.raft.messages import AddVoterRequest, RemoveVoterRequest
from odradek_broker.raft.service import QuorumService
from odradek_broker.raft.values import RaftEndpoint
from odradek_broker.raft.voters import Voter
from odradek_broker.runtime.clock import Clock
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, LeaderEpoch

logger = logging.getLogger(__name__)

# How often the voters are checked. Changes are rare and not urgent.
VOTERS_SECONDS = 0.5
# While a cluster forms, its voters are added one after the other: then they are checked often, so
# that three brokers survive the loss of one within half a second of their start.
FORMING_MS = 5000.0
FORMING_VOTERS_SECONDS = 0.05
VOTER_CHANGE_TIMEOUT_MS = 5000
# How often an active controller checks that its loop runs, and the delay that counts as a pause.
PULSE_SECONDS = 0.1
LATE_FROM_MS = 50.0


class ControllerSeat:
    def __init__(
        self,
        controller: ControllerService,
        quorum: QuorumService,
        metadata: MetadataPublisher,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._controller = controller
        self._quorum = quorum
        self._metadata = metadata
        self._clock = clock
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._pulse_timer: asyncio.TimerHandle | None = None
        self._pulse_due_ms = 0.0
        self._voters_task: asyncio.Task[None] | None = None
        self._predecessor: BrokerId | None = None
        controller.on_due_earlier = self._arm
        quorum.watch_leader(self._leader_changed)
        metadata.subscribe(self._changed)
        quorum.attach(self)

    def became_leader(self, epoch: LeaderEpoch) -> None:
        self._controller.become_active(epoch, self._metadata.image)
        self._voters_task = self._loop.create_task(self._manage_voters())
        self._arm_pulse()
        self._arm()
        if self._predecessor is not None:
            # The previous controller is often dead. If it is not, its heartbeat follows at once.
            self._controller.lost_contact(self._predecessor)
            self._predecessor = None

    def _leader_changed(self) -> None:
        leader_id = self._quorum.leader.leader_id
        if leader_id is not None and leader_id != self._controller.node_id:
            self._predecessor = BrokerId(leader_id)

    def lost_leadership(self) -> None:
        self.stop()
        self._controller.resign()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pulse_timer is not None:
            self._pulse_timer.cancel()
            self._pulse_timer = None
        if self._voters_task is not None:
            self._voters_task.cancel()
            self._voters_task = None

    # -- periodic work ------------------------------------------------------------------------

    def _changed(self, _delta: MetadataDelta, _epoch: LeaderEpoch) -> None:
        if self._controller.is_active:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._controller.next_tick_ms()
        if due_ms != float("inf"):
            delay_ms = max(0.0, due_ms - self._clock.monotonic_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._look_at_pulse()
        self._controller.tick()
        self._arm()

    def _arm_pulse(self) -> None:
        self._pulse_due_ms = self._clock.monotonic_ms() + PULSE_SECONDS * 1000
        self._pulse_timer = self._loop.call_later(PULSE_SECONDS, self._pulse)

    def _pulse(self) -> None:
        self._look_at_pulse()
        self._arm_pulse()

    def _look_at_pulse(self) -> None:
        """After a pause of the loop, heartbeats are still in the sockets: extend the sessions."""
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - self._pulse_due_ms
        if late_ms > LATE_FROM_MS:
            self._pulse_due_ms = now_ms
            self._controller.was_away(late_ms)

    # -- voters ---------------------------------------------------------------------------------

    async def _manage_voters(self) -> None:
        formed_ms = self._clock.monotonic_ms() + FORMING_MS
        while True:
            forming = self._clock.monotonic_ms() < formed_ms
            await asyncio.sleep(FORMING_VOTERS_SECONDS if forming else VOTERS_SECONDS)
            try:
                await self._change_voters()
            except KafkaError as error:
                logger.info("the voters could not be changed: %s", error)
            except Exception:
                logger.exception("the voters could not be changed; this is a bug in Odradek")

    async def _change_voters(self) -> None:
        quorum = self._quorum
        change = self._controller.voter_change(quorum.voters, quorum.observers())
        if change is None:
            return
        verb = "becomes a voter" if isinstance(change, Add) else "is removed from the voters"
        logger.info("node %d %s: %s", change.key.id, verb, change.reason)
        request: AddVoterRequest | RemoveVoterRequest = RemoveVoterRequest(change.key)
        if isinstance(change, Add):
            endpoint = self._metadata.image.brokers[BrokerId(change.key.id)].endpoints.get(
                quorum.listener
            )
            if endpoint is None:
                message = f"broker {change.key.id} has no listener {quorum.listener}"
                raise KafkaError(ErrorCode.invalid_request, message)
            where = (RaftEndpoint(endpoint.name, endpoint.host, endpoint.port),)
            request = AddVoterRequest(Voter(change.key, where), VOTER_CHANGE_TIMEOUT_MS)
        response = await quorum.change_voters(request)
        if response.error is not ErrorCode.none:
            raise KafkaError(response.error, response.message)
