"""ElectLeaders (43), v0–2: elects the preferred replicas, or any live replica (unclean election).

Decided by the controller, per partition. Version 0 has only preferred elections.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.messages import refused
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 43
VERSIONS = range(0, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        return await to_controller(ctx, request, ctx.broker.controller.elect_leaders)
    except KafkaError as error:
        return Struct(error_code=error.code, replica_election_results=_refused(request, error))


def _refused(request: Struct, error: KafkaError) -> list[Struct]:
    return [
        Struct(
            topic=topic.topic,
            partition_result=[refused(error, partition_id=index) for index in topic.partitions],
        )
        for topic in request.topic_partitions or ()
    ]
