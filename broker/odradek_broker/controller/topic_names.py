"""Valid topic names, and Kafka's error messages for invalid and unknown ones."""

import re

from odradek_protocol.error_codes import ErrorCode, KafkaError

NAME_LENGTH_MAX = 249  # leaves room for "-<partition>" and a suffix in a directory name
NOT_HOSTED = "This server does not host this topic-partition."  # of an unknown topic
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str) -> None:
    """Raises KafkaError(INVALID_TOPIC_EXCEPTION)."""
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL.fullmatch(name):
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    if reason:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {reason}")


def collision_key(name: str) -> str:
    """Names with the same key would have the same metric name: `a.b` and `a_b`."""
    return name.replace(".", "_")
