"""Requests of this broker to the active controller, on this node or another.

    channel = ControllerChannel(quorum, {62: controller.broker_registration, …}, "lifecycle-1")
    answer = await channel.call(62, 4, Struct(…), timeout_ms=2000)

If this node leads the quorum, the request is a plain call; else it is sent to the leader over the
channel's own connection. While the controller changes, the request is retried, so callers never get
NOT_CONTROLLER; after the timeout, PeerUnavailable has the last reason. A request may have been
carried out although its response was lost, as everywhere in Kafka.

Responses come in order on a connection: requests that must not wait for others use their own
channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol

from odradek_broker.raft.service import QuorumService
from odradek_broker.runtime.peer import Peer, PeerUnavailable
from odradek_broker.runtime.peer_security import PeerSecurity
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
        security: PeerSecurity | None = None,
    ) -> None:
        self._quorum = quorum
        self._local = local
        self._loop = loop
        self._client_id = client_id
        self._security = security
        self._peer: Peer | None = None
        self._leader_changed = asyncio.Event()
        quorum.watch_leader(self._on_leader_change)

    async def call(self, api_key: int, version: int, request: Struct, timeout_ms: float) -> Struct:
        """The controller's response. Its `error_code` is never NOT_CONTROLLER."""
        local = self._local[api_key]
        return await self.run(lambda: local(request), (api_key, version, request), timeout_ms)

    async def run(self, here: Here, there: tuple[int, int, Struct], timeout_ms: float) -> Struct:
        """Calls `here()` if this node is the controller, else sends the request `there`."""
        deadline = self._loop.time() + timeout_ms / 1000
        reason = "no controller is known"
        while True:
            self._leader_changed.clear()
            left_ms = (deadline - self._loop.time()) * 1000
            if left_ms <= 0:
                raise PeerUnavailable(f"no response from the controller: {reason}")
            try:
                answer = await self._attempt(here, there, left_ms)
                if ErrorCode(getattr(answer, "error_code", 0)) is not ErrorCode.not_controller:
                    return answer
                reason = "another node is the controller now"
            except PeerUnavailable as error:
                reason = str(error)
            await self._wait_for_leader_change(min(RETRY_SECONDS, left_ms / 1000))

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
            self._peer = Peer(
                *address, self._loop, client_id=self._client_id, security=self._security
            )
        return self._peer

    def _on_leader_change(self) -> None:
        """Requests that wait for the old leader are sent to the new one."""
        self._leader_changed.set()
        address = self._quorum.leader_address()
        if self._peer is not None and (self._peer.host, self._peer.port) != address:
            self._peer.close()
            self._peer = None

    async def _wait_for_leader_change(self, seconds: float) -> None:
        # Not wait_for, which may swallow a cancellation (Python 3.11).
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._leader_changed.wait()

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
