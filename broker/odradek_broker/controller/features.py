"""UpdateFeatures: the one feature is metadata.version, at the one level that we write.

`kafka-features` asks for more or less of it; both are refused, in Apache Kafka's words.
"""

from enum import IntEnum

from odradek_broker.controller.result import Result
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import FeatureLevelRecord, MetadataRecord
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.wire.struct import Struct


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(image: MetadataImage, request: Struct) -> Result[Struct]:
    """All or nothing, as Kafka does it."""
    records: list[MetadataRecord] = []
    for update in request.feature_updates:
        upgrade_type = getattr(update, "upgrade_type", UpgradeType.UPGRADE)
        reason = _reason_against(image, update.feature, update.max_version_level, upgrade_type)
        if reason is not None:
            raise KafkaError(
                ErrorCode.invalid_update_version,
                f"Invalid update version {update.max_version_level} for feature "
                f"{update.feature}. {reason}",
            )
        records.append(FeatureLevelRecord(update.feature, update.max_version_level))
    answer = Struct(error_code=ErrorCode.none, error_message=None)
    return Result([] if request.validate_only else records, answer)


def _reason_against(image: MetadataImage, name: str, level: int, upgrade_type: int) -> str | None:
    if upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    for broker in sorted(image.brokers.values(), key=lambda broker: broker.id):
        supported = next((f for f in broker.features if f.name == name), None)
        lowest = supported.min_supported_version if supported else 0
        highest = supported.max_supported_version if supported else 0
        if level != 0 and highest == 0:
            return f"Broker {broker.id} does not support this feature."
        if not lowest <= level <= highest:
            return f"Broker {broker.id} only supports versions {lowest}-{highest}"
    current = image.features.get(name, 0)
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if level < current:
        return (
            "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
        )
    return None
