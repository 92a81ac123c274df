"""ApiVersions (18), v0–4: which APIs and versions this broker offers.

The list is that of the registry, without the APIs that only brokers ask each other. A client that
asks in a version that we do not know gets UNSUPPORTED_VERSION in the v0 shape together with the
list, and asks again with a version it finds there (KIP-511). From v3 on also the features: what
this release supports, and the levels that the cluster has agreed on, as of an offset of the
metadata log.
"""

import re

from odradek_broker.handlers.context import RequestContext
from odradek_broker.metadata.features import SUPPORTED_FEATURES
from odradek_broker.raft.values import KRAFT_VERSION
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 18
VERSIONS = range(0, 5)

# What Kafka accepts as a client's name and version (KIP-511).
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# Produce is served from v3 but offered from v0, as Kafka 4 does: librdkafka 2.0 (Debian 12's)
# looks for the old versions, and without them sends gzip, snappy and lz4 silently uncompressed.
OFFERED_FROM = {0: 0}

KRAFT_VERSION_FEATURE = "kraft.version"
# Older versions cannot say that a feature may be off altogether.
ZERO_MIN_SINCE = 4
_SUPPORTED = [
    Struct(name=name, min_version=lowest, max_version=highest)
    for name, lowest, highest in (
        *((f.name, f.min_supported_version, f.max_supported_version) for f in SUPPORTED_FEATURES),
        (KRAFT_VERSION_FEATURE, 0, KRAFT_VERSION),
    )
]
_SUPPORTED_V3 = [feature for feature in _SUPPORTED if feature.min_version > 0]

_offered: list[Struct] = []


def offer(versions: dict[int, range]) -> None:
    """Called once by the registry."""
    _offered[:] = [
        Struct(
            api_key=key, min_version=OFFERED_FROM.get(key, span.start), max_version=span.stop - 1
        )
        for key, span in sorted(versions.items())
    ]


def handle(ctx: RequestContext, request: Struct) -> Struct:
    if ctx.api_version >= 3 and not (
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return Struct(error_code=ErrorCode.invalid_request)
    image = ctx.broker.metadata.image
    levels = {**image.features, KRAFT_VERSION_FEATURE: KRAFT_VERSION}
    return Struct(
        error_code=ErrorCode.none,
        api_keys=_offered,
        supported_features=_SUPPORTED if ctx.api_version >= ZERO_MIN_SINCE else _SUPPORTED_V3,
        finalized_features_epoch=image.offset,
        finalized_features=[
            Struct(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
        ]
        if image.offset >= 0
        else [],
    )


def unsupported() -> Struct:
    return Struct(error_code=ErrorCode.unsupported_version, api_keys=_offered)
