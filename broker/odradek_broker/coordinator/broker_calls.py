"""Requests of a coordinator to other brokers, and to this one by a plain call.

Used by transactions (markers, verifications) and by share groups (their state).
"""

from collections.abc import Awaitable, Callable, Mapping

from odradek_broker.metadata.image import MetadataImage
from odradek_broker.runtime.peer import Peer, PeerUnavailable
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct


class BrokerCalls:
    """A connection to each broker, opened when needed; this broker is called directly."""

    def __init__(
        self,
        node_id: BrokerId,
        listener: str,
        image: Callable[[], MetadataImage],
        local: Mapping[int, Callable[[Struct], Awaitable[Struct]]],
        connect: Callable[[str, int], Peer],
    ) -> None:
        self._node_id = node_id
        self._listener = listener
        self._image = image
        self._local = local
        self._connect = connect
        self._peers: dict[BrokerId, Peer] = {}

    async def call(
        self, broker_id: BrokerId, api_key: int, version: int, request: Struct, timeout_ms: float
    ) -> Struct:
        """PeerUnavailable if there is no response; the request may have been carried out."""
        if broker_id == self._node_id:
            return await self._local[api_key](request)
        broker = self._image().brokers.get(broker_id)
        endpoint = broker.endpoints.get(self._listener) if broker is not None else None
        if endpoint is None:
            raise PeerUnavailable(f"broker {broker_id} is not registered")
        peer = self._peers.get(broker_id)
        if peer is None or (peer.host, peer.port) != (endpoint.host, endpoint.port):
            if peer is not None:
                peer.close()
            peer = self._peers[broker_id] = self._connect(endpoint.host, endpoint.port)
        return await peer.call(api_key, version, request, timeout_ms)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
