"""Feature levels: what this broker supports, and what a new cluster starts with."""

from odradek_broker.metadata.records import SupportedFeature

METADATA_VERSION = "metadata.version"
METADATA_VERSION_LEVEL = 30  # 4.3-IV0, the release whose records and responses we follow
METADATA_VERSION_MIN = 7  # 3.3-IV3, the lowest level that Kafka 4 supports
GROUP_VERSION = "group.version"
GROUP_VERSION_LEVEL = 1  # the consumer protocol (KIP-848): clients check for it
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_VERSION_LEVEL = 2  # every transaction has its own producer epoch (KIP-890)
SHARE_VERSION = "share.version"
SHARE_VERSION_LEVEL = 1  # share groups (KIP-932)
STREAMS_VERSION = "streams.version"
STREAMS_VERSION_LEVEL = 1  # streams groups (KIP-1071)
SUPPORTED_FEATURES = (
    SupportedFeature(METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_LEVEL),
    SupportedFeature(GROUP_VERSION, 0, GROUP_VERSION_LEVEL),
    SupportedFeature(SHARE_VERSION, 0, SHARE_VERSION_LEVEL),
    SupportedFeature(STREAMS_VERSION, 0, STREAMS_VERSION_LEVEL),
    SupportedFeature(TRANSACTION_VERSION, 0, TRANSACTION_VERSION_LEVEL),
)
