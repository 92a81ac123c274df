"""Producer ids: a broker gets a block of 1000 and gives out single ones from it.

A block is a record, so ids are unique over all brokers and restarts; what is left of a block
when a broker stops is lost, which costs nothing of 2^63.
"""

from odradek_broker.controller.result import Result
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import ProducerIdsRecord
from odradek_broker.model.ids import BrokerId

BLOCK_SIZE = 1000


def allocate_block(image: MetadataImage, broker_id: BrokerId, broker_epoch: int) -> Result[range]:
    block = range(image.next_producer_id, image.next_producer_id + BLOCK_SIZE)
    return Result([ProducerIdsRecord(broker_id, broker_epoch, block.stop)], block)
