"""Producer ids: the controller allocates blocks of 1000 ids to brokers.

A block is a record, so ids are unique across brokers and restarts. The unused ids of a block are
lost when a broker stops; with 2^63 ids that does not matter.
"""

from odradek_broker.controller.brokers import check_epoch
from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import ProducerIdsRecord
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1


def allocate_producer_ids(image: MetadataImage, request: Struct) -> ControllerResult[Struct]:
    """AllocateProducerIds. Raises KafkaError (STALE_BROKER_EPOCH)."""
    check_epoch(image, request.broker_id, request.broker_epoch)
    block = range(image.next_producer_id, image.next_producer_id + BLOCK_SIZE)
    if block.stop > PRODUCER_ID_MAX:
        raise KafkaError(
            ErrorCode.unknown_server_error,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 "
            "type limit",
        )
    record = ProducerIdsRecord(request.broker_id, request.broker_epoch, block.stop)
    response = Struct(
        error_code=ErrorCode.none, producer_id_start=block.start, producer_id_len=len(block)
    )
    return ControllerResult([record], response)
