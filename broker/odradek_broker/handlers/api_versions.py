"""ApiVersions (18), v0–4: which APIs and versions this broker offers.

The list is that of the registry. A client that asks in a version that we do not know gets
UNSUPPORTED_VERSION in the v0 shape together with the list, and asks again with a version it
finds there (KIP-511). From v3 on it tells the features too, as of the metadata image (KIP-584).
"""

import re

from odradek_broker.controller.brokers import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_MIN,
)
from odradek_broker.handlers.context import RequestContext
from odradek_broker.model.errors import ErrorCode
from odradek_broker.wire.struct import Struct

API_KEY = 18
VERSIONS = range(0, 5)

# What Kafka accepts as a client's name and version (KIP-511).
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# Produce is served from v3 but offered from v0, as Kafka 4 does: librdkafka 2.0 (Debian 12's)
# looks for the old versions, and without them sends gzip, snappy and lz4 silently uncompressed.
OFFERED_FROM = {0: 0}

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
    image = ctx.broker.controller.image
    return Struct(
        error_code=ErrorCode.none,
        api_keys=_offered,
        supported_features=[
            Struct(
                name=METADATA_VERSION,
                min_version=METADATA_VERSION_MIN,
                max_version=METADATA_VERSION_LEVEL,
            )
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            Struct(name=name, min_version_level=level, max_version_level=level)
            for name, level in image.features.items()
        ],
    )


def unsupported() -> Struct:
    return Struct(error_code=ErrorCode.unsupported_version, api_keys=_offered)
