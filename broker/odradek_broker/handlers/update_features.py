"""UpdateFeatures (57), v0–2: changes the levels of features, all of a request or none.

metadata.version has one level; transaction.version (0–2) selects the transaction protocol.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 57
VERSIONS = range(0, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    async def decide(request: Struct) -> Struct:
        try:
            answer = await ctx.broker.controller.update_features(request)
        except KafkaError as error:
            if error.code is ErrorCode.not_controller:
                raise
            answer = Struct(error_code=error.code, error_message=error.message)
        if ctx.api_version < 2 and answer.error_code is ErrorCode.none:
            answer.results = [_result(update.feature) for update in request.feature_updates]
        return answer

    return await to_controller(ctx, request, decide)


def _result(feature: str) -> Struct:
    """Up to version 1 each feature has a result; the message is Apache Kafka's."""
    return Struct(feature=feature, error_code=ErrorCode.none, error_message="NONE")
