"""Sends the quorum's requests to other nodes, and passes responses back as events.

Two connections per address: a fetch may be parked at the leader for half a second, and a vote
must not queue behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from odradek_broker.raft import rpc_requests, rpc_responses
from odradek_broker.raft.messages import FetchRequest, FetchSnapshotRequest
from odradek_broker.raft.quorum_state import QuorumState
from odradek_broker.raft.types import Event, ReceivedResponse, RequestFailed, Send
from odradek_broker.raft.values import LeaderAndEpoch, NodeId, NodeIdentity
from odradek_broker.runtime.peer import Peer, PeerRefused, PeerUnavailable
from odradek_broker.runtime.peer_security import PeerSecurity
from odradek_broker.runtime.quorum_addresses import Address
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError

logger = logging.getLogger(__name__)

# Beyond this many, connections to the oldest addresses (nodes that moved) are closed.
PEERS_MAX = 64


class WrongClusterError(Exception):
    """A node belongs to another cluster."""


class RequestSender:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        identity: NodeIdentity,
        bootstrap: Mapping[NodeId, Address],
        fetch_bytes_max: int,
        *,
        on_leader_heard: Callable[[NodeId, LeaderAndEpoch], None],
        on_wrong_cluster: Callable[[WrongClusterError], None],
        security: PeerSecurity | None = None,
    ) -> None:
        self._loop = loop
        self._cluster_id = identity.cluster_id
        self._listener = identity.listener
        self._bootstrap = bootstrap
        self._fetch_bytes_max = fetch_bytes_max
        self._client_id = f"broker-{identity.key.id}-quorum"
        self._on_leader_heard = on_leader_heard
        self._on_wrong_cluster = on_wrong_cluster
        self._security = security
        self._peers: dict[tuple[Address, bool], Peer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, state: QuorumState, send: Send, give: Callable[[Event], None]) -> None:
        """`give` is called later, with the response or the failure."""
        address = self.address_of(state, send.to)
        if address is None:
            logger.warning("no address is known for node %d", send.to)
            self._loop.call_soon(give, RequestFailed(send.correlation_id))
            return
        timeout_ms = state.config.request_timeout_ms
        self._start(self._call(address, send, timeout_ms, give))

    def address_of(self, state: QuorumState, node_id: NodeId) -> Address | None:
        """From the leader's own endpoints, the voter set, the settings; in this order."""
        endpoints = state.leader_endpoints if node_id == state.leader_id else ()
        for endpoint in (*endpoints, *state.voters.endpoints_of(node_id)):
            if endpoint.listener == self._listener:
                return Address(endpoint.host, endpoint.port)
        return self._bootstrap.get(node_id)

    async def _call(
        self, address: Address, send: Send, timeout_ms: float, give: Callable[[Event], None]
    ) -> None:
        request = send.request
        message = rpc_requests.encode(request, self._cluster_id, self._fetch_bytes_max)
        fetches = isinstance(request, FetchRequest | FetchSnapshotRequest)
        try:
            answer = await self._peer(address, fetches).call(*message, timeout_ms)
            response = rpc_responses.decode(request, answer, self._listener)
        except PeerUnavailable as error:
            logger.debug("%s to node %d: %s", type(request).__name__, send.to, error)
            give(RequestFailed(send.correlation_id, isinstance(error, PeerRefused)))
        except (KafkaError, DecodeError) as error:
            logger.warning("%s to node %d: %s", type(request).__name__, send.to, error)
            give(RequestFailed(send.correlation_id))
            if isinstance(error, KafkaError) and error.code is ErrorCode.inconsistent_cluster_id:
                self._on_wrong_cluster(
                    WrongClusterError(
                        f"{address} belongs to another cluster than {self._cluster_id}"
                    )
                )
        else:
            give(ReceivedResponse(send.to, send.correlation_id, response))
            self._on_leader_heard(send.to, response.leader)

    def _peer(self, address: Address, fetches: bool) -> Peer:
        peer = self._peers.get((address, fetches))
        if peer is None:
            if len(self._peers) >= PEERS_MAX:
                oldest = next(iter(self._peers))
                self._peers.pop(oldest).close()
            peer = Peer(*address, self._loop, client_id=self._client_id, security=self._security)
            self._peers[address, fetches] = peer
        return peer

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for peer in self._peers.values():
            peer.close()
