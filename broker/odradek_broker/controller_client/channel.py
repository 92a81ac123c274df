"""Requests of this broker to the active controller, wherever that is just now.

    channel = ControllerChannel(quorum, {62: controller.broker_registration, …}, "lifecycle-1")
    answer = await channel.call(62, 4, Struct(…), timeout_ms=2000)

The quorum says who leads. If this node does, the request is a plain call; else it goes to the
leader over a connection of its own. While the controller moves it is asked again, so nobody
above ever sees NOT_CONTROLLER; when the time is over, PeerUnavailable says what was missing. A
request may have been carried out although its answer was lost: as everywhere in Kafka.

Answers come in order on a connection: what must not wait for others has a channel of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol

from odradek_broker.raft.service import QuorumService
from odradek_broker.runtime.peer import Peer, PeerUnavailable
from odradek_broker.runtime.quorum_addresses import Address
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

RETRY_SECONDS = 0.05


class ControllerCalls(Protocol):
    """Requests to the active controller. `ControllerChannel` sends them; tests have their own."""

    def call(
        self, api_key: int, version: int, request: Struct, timeout_ms: float
    ) -> Awaitable[Struct]:
        """PeerUnavailable if no controller is known, or none responded in time."""


Here = Callable[[], Awaitable[Struct]]
LocalRequests = Mapping[int, Callable[[Struct], Awaitable[Struct]]]  # by API key


class ControllerChannel:
    def __init__(
        self,
        quorum: QuorumService,
        local: LocalRequests,
        loop: asyncio.AbstractEventLoop,
        client_id: str,
    ) -> None:
        self._quorum = quorum
        self._local = local
        self._loop = loop
        self._client_id = client_id
        self._peer: Peer | None = None
        self._moved = asyncio.Event()  # the leader is another one
        quorum.watch_leader(self._leader_changed)

    async def call(self, api_key: int, version: int, request: Struct, timeout_ms: float) -> Struct:
        """The controller's answer. Its `error_code` may be anything but NOT_CONTROLLER."""
        local = self._local[api_key]
        return await self.run(lambda: local(request), (api_key, version, request), timeout_ms)

    async def run(self, here: Here, there: tuple[int, int, Struct], timeout_ms: float) -> Struct:
        """`here()` if this node is the controller, else the request `there` to it."""
        deadline = self._loop.time() + timeout_ms / 1000
        reason = "no controller is known"
        while True:
            self._moved.clear()
            left_ms = (deadline - self._loop.time()) * 1000
            if left_ms <= 0:
                raise PeerUnavailable(f"the controller did not answer: {reason}")
            try:
                answer = await self._attempt(here, there, left_ms)
                if ErrorCode(getattr(answer, "error_code", 0)) is not ErrorCode.not_controller:
                    return answer
                reason = "it is another one now"
            except PeerUnavailable as error:
                reason = str(error)
            await self._wait_for_news(min(RETRY_SECONDS, left_ms / 1000))

    async def _attempt(
        self, here: Here, there: tuple[int, int, Struct], timeout_ms: float
    ) -> Struct:
        if self._quorum.is_active:
            try:
                return await here()
            except KafkaError as error:
                return Struct(error_code=error.code, error_message=error.message)
        address = self._quorum.leader_address()
        if address is None:
            raise PeerUnavailable("no leader of the metadata quorum is known")
        return await self._peer_at(address).call(*there, timeout_ms)

    def _peer_at(self, address: Address) -> Peer:
        if self._peer is None or (self._peer.host, self._peer.port) != address:
            if self._peer is not None:
                self._peer.close()
            self._peer = Peer(*address, self._loop, client_id=self._client_id)
        return self._peer

    def _leader_changed(self) -> None:
        """Whoever waits for the old leader asks the new one."""
        self._moved.set()
        address = self._quorum.leader_address()
        if self._peer is not None and (self._peer.host, self._peer.port) != address:
            self._peer.close()
            self._peer = None

    async def _wait_for_news(self, seconds: float) -> None:
        # Not wait_for, which may swallow a cancellation (Python 3.11).
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._moved.wait()

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
