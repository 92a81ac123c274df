"""PushTelemetry (72), v0: the metrics of a client, which then are on /metrics (KIP-714).

The request has OpenTelemetry's MetricsData, compressed, at most telemetry.max.bytes before and
after decompression. Gauges and sums are kept; histograms are not.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.get_telemetry_subscriptions import client_of
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 72
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        await ctx.broker.telemetry.push(
            request,
            lambda instance_id: client_of(ctx, instance_id),
            ctx.broker.metadata.image,
            ctx.broker.settings.int("telemetry.max.bytes"),
            ctx.broker.clock.monotonic_ms(),
        )
    except KafkaError as error:
        return Struct(error_code=error.code)
    return Struct(error_code=ErrorCode.none)
