"""ListConfigResources (74), v0–1: lists the resources that have a configuration.

v0 (formerly ListClientMetricsResources) lists only client metrics subscriptions. v1 lists resources
by type; without types, all of them.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.metadata.records import ResourceType
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 74
VERSIONS = range(0, 2)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    asked = {int(kind) for kind in ResourceType}
    if ctx.api_version == 0:
        asked = {int(ResourceType.CLIENT_METRICS)}
    elif request.resource_types:
        if not asked.issuperset(request.resource_types):
            return Struct(error_code=ErrorCode.unsupported_version, config_resources=[])
        asked = set(request.resource_types)
    image = ctx.broker.controller.image
    brokers = [str(broker) for broker in image.brokers]

    def configured(kind: ResourceType) -> list[str]:
        return [r.name for r, own in image.configs.items() if own and r.type is kind]

    names = {
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.BROKER: brokers,
        ResourceType.TOPIC: list(image.topics),
        ResourceType.CLIENT_METRICS: configured(ResourceType.CLIENT_METRICS),
        ResourceType.GROUP: configured(ResourceType.GROUP),
    }
    return Struct(
        error_code=ErrorCode.none,
        config_resources=[
            Struct(resource_name=name, resource_type=kind)
            for kind in names
            if kind in asked
            for name in names[kind]
        ],
    )
