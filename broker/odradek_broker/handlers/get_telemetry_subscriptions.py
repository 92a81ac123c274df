"""GetTelemetrySubscriptions (71), v0: which metrics a client pushes, and how often (KIP-714).

Clients ask when they start and then once per interval, also if no subscription matches them (five
minutes). An answer is for one client: its instance id, made here at its first request.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.telemetry.service import ACCEPTED_CODECS
from odradek_broker.telemetry.subscriptions import TelemetryClient
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 71
VERSIONS = range(0, 1)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    telemetry = ctx.broker.telemetry
    try:
        instance = telemetry.subscription_for(
            request.client_instance_id,
            lambda instance_id: client_of(ctx, instance_id),
            ctx.broker.metadata.image,
            ctx.broker.clock.monotonic_ms(),
        )
    except KafkaError as error:
        return _response(error_code=error.code)
    ctx.when_closed(instance, telemetry.instances.forget)
    return _response(
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval=instance.selection.interval_ms,
        telemetry_max_bytes=ctx.broker.settings.int("telemetry.max.bytes"),
        # Totals, not differences: a scrape of /metrics then needs no memory of earlier pushes.
        delta_temporality=False,
        requested_metrics=list(instance.selection.metrics),
    )


def _response(**fields: object) -> Struct:
    empty = Struct(
        throttle_time=0,
        error_code=ErrorCode.none,
        client_instance_id=None,
        subscription_id=0,
        accepted_compression_types=[],
        push_interval=0,
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=[],
    )
    return Struct(**{**empty.__dict__, **fields})


def client_of(ctx: RequestContext, instance_id: str) -> TelemetryClient:
    software = ctx.client_software
    return TelemetryClient(instance_id, ctx.client_id, *software, ctx.client_host)
