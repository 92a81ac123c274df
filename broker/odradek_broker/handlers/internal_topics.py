"""Creates `__consumer_offsets` and `__transaction_state` when they are first needed."""

from odradek_broker.coordinator.internal_topics import InternalTopic, internal_topic
from odradek_broker.handlers import create_topics
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

CREATE_TIMEOUT_MS = 5000


def as_request(topic: InternalTopic) -> Struct:
    """The topic in a CreateTopics request."""
    return Struct(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[],
        configs=[Struct(name=name, value=value) for name, value in topic.configs.items()],
    )


async def ensure(ctx: RequestContext, name: str) -> None:
    """Create the topic if it is missing; KafkaError(COORDINATOR_NOT_AVAILABLE) if that fails."""
    if name in ctx.broker.metadata.image.topics:
        return
    topic = internal_topic(name, ctx.broker.settings, ctx.broker.metadata.image)
    try:
        answer = await to_controller(
            ctx,
            Struct(topics=[as_request(topic)], timeout=CREATE_TIMEOUT_MS, validate_only=False),
            ctx.broker.controller.create_topics,
            api_key=create_topics.API_KEY,
            version=create_topics.VERSIONS[-1],
            as_broker=True,
        )
    except KafkaError as error:
        raise KafkaError(ErrorCode.coordinator_not_available, error.message or "") from error
    (created,) = answer.topics
    if created.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
        raise KafkaError(ErrorCode.coordinator_not_available, created.error_message or "")
    await create_topics.until_known(ctx, [name])
