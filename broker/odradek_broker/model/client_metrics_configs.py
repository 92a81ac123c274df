"""The settings of a client metrics subscription (resource type CLIENT_METRICS, KIP-714).

A subscription names the metrics that clients push, how often, and which clients:

    metrics=org.apache.kafka.producer.,org.apache.kafka.consumer.coordinator.
    interval.ms=60000
    match=client_id=orders-.*,client_software_name=apache-kafka-java
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from odradek_broker.model.config_table import ConfigKey, dynamic_table
from odradek_protocol.error_codes import ErrorCode, KafkaError

_TEXT = """
+ metrics     list ""     - -
+ interval.ms int  300000 - -
+ match       list ""     - -
"""

CLIENT_METRICS_CONFIGS: Mapping[str, ConfigKey] = dynamic_table(_TEXT)
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
# Memory for a compiled expression: one like `(((a{99}){99}){99})` would take all of it.
COMPILED_BYTES_MAX = 1 << 20
MATCH_ATTRIBUTES = frozenset({
    "client_instance_id", "client_id", "client_software_name", "client_software_version",
    "client_source_address", "client_source_port",
})  # fmt: skip


def validate_client_metrics_configs(texts: Mapping[str, str]) -> None:
    """KafkaError unless these are valid settings. Raises ConfigError, too."""
    for name in texts:
        if name not in CLIENT_METRICS_CONFIGS:
            raise KafkaError(
                ErrorCode.invalid_request, f"Unknown client metrics configuration: {name}"
            )
    values = {name: CLIENT_METRICS_CONFIGS[name].parse(text) for name, text in texts.items()}
    for name in ("metrics", "match"):
        if "" in (values.get(name) or ()):  # type: ignore[operator]  # a list
            raise KafkaError(
                ErrorCode.invalid_config, f"Configuration '{name}' values must not be empty."
            )
    interval_ms = values.get("interval.ms", INTERVAL_MS_MIN)
    assert isinstance(interval_ms, int)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)",
        )
    for attribute, expression in match_patterns(texts.get("match", "")).items():
        if _compiled(expression) is None:
            raise _illegal_pattern(f"{attribute}={expression}")


def match_patterns(text: str) -> dict[str, str]:
    """`client_id=a.*,client_software_name=b` → attribute → expression."""
    patterns: dict[str, str] = {}
    parsed = CLIENT_METRICS_CONFIGS["match"].parse(text)
    assert isinstance(parsed, tuple)
    for part in parsed:
        name, _, expression = part.partition("=")
        if name.strip() not in MATCH_ATTRIBUTES or not expression or "=" in expression:
            raise _illegal_pattern(part)
        patterns[name.strip()] = expression.strip()
    return patterns


def full_match(expression: str, value: str) -> bool:
    """An expression of a log that another program wrote may be invalid: it matches nothing."""
    pattern = _compiled(expression)
    return pattern is not None and pattern.fullmatch(value) is not None


@lru_cache(maxsize=64)
def _compiled(expression: str) -> Any:
    """RE2: its time is linear in the length of a value, which comes from clients."""
    import re2  # imported late: few clusters have subscriptions

    options = re2.Options()
    options.max_mem = COMPILED_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error:
        return None


def _illegal_pattern(part: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, f"Illegal client matching pattern: {part}")
