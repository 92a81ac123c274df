"""FastStream: upper-cases PREFIX-in into PREFIX-out. app.py BOOTSTRAP PREFIX STATE_DIRECTORY"""

import asyncio
import sys

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker, KafkaMessage

bootstrap, prefix = sys.argv[1:3]
broker = KafkaBroker(bootstrap)
app = FastStream(broker)


@broker.subscriber(
    f"{prefix}-in",
    group_id=f"{prefix}-app",
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.NACK_ON_ERROR,  # commits after the record was written
)
async def handle(text: str, message: KafkaMessage) -> None:
    await broker.publish(text.upper(), f"{prefix}-out", key=message.raw_message.key())


asyncio.run(app.run())
