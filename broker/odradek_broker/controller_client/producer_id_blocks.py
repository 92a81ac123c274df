"""Producer ids for this broker's clients, from blocks of 1,000 that the controller allocates."""

import asyncio
from collections.abc import Callable

from odradek_broker.controller_client.channel import ControllerCalls
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, ProducerId
from odradek_protocol.messages.struct import Struct

ALLOCATE_PRODUCER_IDS, VERSION = 67, 0
TIMEOUT_MS = 10_000.0


class ProducerIdBlocks:
    """No id is ever used twice: the rest of a block is lost when the process ends."""

    def __init__(
        self, node_id: BrokerId, broker_epoch: Callable[[], int], controller: ControllerCalls
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._ids = iter(range(0))
        self._lock = asyncio.Lock()  # at most one AllocateProducerIds request in flight

    async def next(self) -> ProducerId:
        """KafkaError COORDINATOR_LOAD_IN_PROGRESS, which clients retry, if there is no block."""
        async with self._lock:
            producer_id = next(self._ids, None)
            if producer_id is None:
                self._ids = iter(await self._allocate())
                producer_id = next(self._ids)
        return producer_id

    async def _allocate(self) -> range:
        request = Struct(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        try:
            answer = await self._controller.call(
                ALLOCATE_PRODUCER_IDS, VERSION, request, TIMEOUT_MS
            )
        except PeerUnavailable as error:
            raise KafkaError(ErrorCode.coordinator_load_in_progress, str(error)) from error
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.none:
            raise KafkaError(
                ErrorCode.coordinator_load_in_progress, f"no block of producer ids: {code.name}"
            )
        start = answer.producer_id_start
        return range(start, start + answer.producer_id_len)
