"""ApiVersions (18), v0–4: which APIs and versions this broker offers.

The list comes from the registry, without the APIs between brokers; on a listener of
controller.listener.names it has the APIs of a controller. A request in a version that
this broker does not support is answered with UNSUPPORTED_VERSION and the list in a v0 response, so
that the client can repeat it in a version of that list (KIP-511). From v3 on the response has the
features too: those that this release supports, and the levels that the cluster has agreed on, as
of an offset of the metadata log.
"""

import re

from odradek_broker.handlers.context import RequestContext
from odradek_broker.metadata.features import SUPPORTED_FEATURES
from odradek_broker.raft.values import KRAFT_VERSION
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 18
VERSIONS = range(0, 5)

# The pattern of what Kafka accepts as a client's name and version (KIP-511).
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# Kept as long as the connection, which need not have logged in.
SOFTWARE_LENGTH_MAX = 255

KRAFT_VERSION_FEATURE = "kraft.version"
# Older versions have no way to say that a feature may be disabled (min_version 0).
ZERO_MIN_SINCE = 4
_SUPPORTED = [
    Struct(name=name, min_version=lowest, max_version=highest)
    for name, lowest, highest in (
        *((f.name, f.min_supported_version, f.max_supported_version) for f in SUPPORTED_FEATURES),
        (KRAFT_VERSION_FEATURE, 0, KRAFT_VERSION),
    )
]
_SUPPORTED_V3 = [feature for feature in _SUPPORTED if feature.min_version > 0]


def handle(ctx: RequestContext, request: Struct) -> Struct:
    if ctx.api_version >= 3 and not (
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return Struct(error_code=ErrorCode.invalid_request)
    if ctx.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        ctx.set_client_software(name[:SOFTWARE_LENGTH_MAX], version[:SOFTWARE_LENGTH_MAX])
    image = ctx.broker.metadata.image
    levels = {**image.features, KRAFT_VERSION_FEATURE: KRAFT_VERSION}
    return Struct(
        error_code=ErrorCode.none,
        api_keys=_api_keys(ctx),
        supported_features=_SUPPORTED if ctx.api_version >= ZERO_MIN_SINCE else _SUPPORTED_V3,
        finalized_features_epoch=image.offset,
        finalized_features=[
            Struct(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
        ]
        if image.offset >= 0
        else [],
    )


def unsupported(ctx: RequestContext) -> Struct:
    """The v0 response to a request in an unsupported version."""
    return Struct(error_code=ErrorCode.unsupported_version, api_keys=_api_keys(ctx))


def _api_keys(ctx: RequestContext) -> list[Struct]:
    apis = ctx.broker.apis
    if ctx.listener in ctx.broker.settings.listeners.controller_names:
        return apis.advertised_by_controllers
    if ctx.broker.telemetry.has_subscriptions(ctx.broker.metadata.image):
        return apis.advertised_with_telemetry
    return apis.advertised
