"""ListPartitionReassignments (46), v0: partitions that are moving between brokers."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.model.errors import ErrorCode
from odradek_broker.wire.struct import Struct

API_KEY = 46
VERSIONS = range(0, 1)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    topics = ctx.broker.controller.image.topics
    if request.topics is None:
        asked = {name: list(topic.partitions) for name, topic in topics.items()}
    else:
        asked = {topic.name: topic.partition_indexes for topic in request.topics}
    answers = []
    for name in asked.keys() & topics.keys():
        moving = [
            Struct(
                partition_index=index,
                replicas=partition.replicas,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
            )
            for index, partition in topics[name].partitions.items()
            if index in asked[name] and (partition.adding_replicas or partition.removing_replicas)
        ]
        if moving:
            answers.append(Struct(name=name, partitions=moving))
    return Struct(error_code=ErrorCode.none, topics=answers)
