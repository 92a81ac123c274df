"""UpdateFeatures: metadata.version, at the one level that we write, and transaction.version.

Requests for another metadata.version are refused, with Apache Kafka's messages. transaction.version
may be raised and lowered: clients follow ApiVersions.
"""

from collections.abc import Sequence
from enum import IntEnum

from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import (
    FeatureLevelRecord,
    MetadataRecord,
    SupportedFeature,
)
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(
    image: MetadataImage, request: Struct, node_id: int
) -> ControllerResult[Struct]:
    """All or nothing, like Kafka. `node_id` is the id of this controller."""
    records: list[MetadataRecord] = []
    for update in request.feature_updates:
        # Version 0 can only allow a downgrade, without naming its kind.
        kind = getattr(update, "upgrade_type", UpgradeType.UPGRADE)
        name, level = update.feature, update.max_version_level
        reason = _reason_against(image, node_id, name, level, kind)
        if reason is not None:
            raise KafkaError(
                ErrorCode.invalid_update_version,
                "The update failed for all features since the following feature had an error: "
                + reason,
            )
        if level != image.features.get(name, 0):
            records.append(FeatureLevelRecord(name, level))
    answer = Struct(error_code=ErrorCode.none, error_message=None)
    return ControllerResult([] if request.validate_only else records, answer)


def _reason_against(
    image: MetadataImage, node_id: int, name: str, level: int, kind: int
) -> str | None:
    current = image.features.get(name, 0)
    reason = None
    if kind not in tuple(UpgradeType):
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    else:
        reason = _not_supported(f"Local controller {node_id}", SUPPORTED_FEATURES, name, level)
        for broker in sorted(image.brokers.values(), key=lambda broker: broker.id):
            reason = reason or _not_supported(f"Broker {broker.id}", broker.features, name, level)
    if reason is None and level < current and kind == UpgradeType.UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    elif reason is None and level > current and kind != UpgradeType.UPGRADE:
        reason = "Can't downgrade to a newer version."
    if reason is not None:
        return f"Invalid update version {level} for feature {name}. {reason}"
    if level < current and name == METADATA_VERSION:
        # The log already has records of this level.
        reason = "Refusing to perform the requested downgrade because it might delete metadata "
        reason += "information."
        if kind == UpgradeType.UNSAFE_DOWNGRADE:
            reason = "Unsafe metadata downgrade is not supported in this version."
        return f"Unsupported {name} downgrade from {current} to {level}. {reason}"
    return None


def _not_supported(
    who: str, features: Sequence[SupportedFeature], name: str, level: int
) -> str | None:
    found = next((feature for feature in features if feature.name == name), None)
    if found is None:
        return f"{who} does not support this feature." if level else f"Feature {name} not found."
    lowest, highest = found.min_supported_version, found.max_supported_version
    if not lowest <= level <= highest:
        return f"{who} only supports versions {lowest}-{highest}"
    return None
