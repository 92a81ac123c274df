"""The settings of a single group (resource type GROUP): the table, and the bounds of the broker.

The same format as `model/topic_configs.py`: the last column is the broker setting with the default.
A broker setting `group.consumer.session.timeout.ms` has its bounds in
`group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`.
"""

import re
from collections.abc import Callable, Mapping

from odradek_broker.model.config_table import (
    BROKER_CONFIGS,
    ConfigError,
    ConfigKey,
    ConfigValue,
    dynamic_table,
)

_TEXT = """
+ consumer.session.timeout.ms        int     45000            1..    group.consumer.session.timeout.ms
+ consumer.heartbeat.interval.ms     int     5000             1..    group.consumer.heartbeat.interval.ms
+ consumer.assignment.interval.ms    int     1000             0..    group.consumer.assignment.interval.ms
+ share.session.timeout.ms           int     45000            1..    group.share.session.timeout.ms
+ share.heartbeat.interval.ms        int     5000             1..    group.share.heartbeat.interval.ms
+ share.record.lock.duration.ms      int     30000            1000.. group.share.record.lock.duration.ms
+ share.delivery.count.limit         int     5                2..    group.share.delivery.count.limit
+ share.partition.max.record.locks   int     2000             100..  group.share.partition.max.record.locks
+ share.auto.offset.reset            string  latest           -      -
+ share.isolation.level              string  read_uncommitted read_committed|read_uncommitted -
+ share.renew.acknowledge.enable     boolean true             -      -
+ share.assignment.interval.ms       int     1000             0..    group.share.assignment.interval.ms
+ streams.session.timeout.ms         int     45000            1..    group.streams.session.timeout.ms
+ streams.heartbeat.interval.ms      int     5000             1..    group.streams.heartbeat.interval.ms
+ streams.num.standby.replicas       int     0                0..    group.streams.num.standby.replicas
+ streams.initial.rebalance.delay.ms int     3000             0..    group.streams.initial.rebalance.delay.ms
+ streams.assignment.interval.ms     int     1000             0..    group.streams.assignment.interval.ms
"""  # noqa: E501

GROUP_CONFIGS: Mapping[str, ConfigKey] = dynamic_table(_TEXT)

_RESET = "share.auto.offset.reset"
_DURATION = re.compile(r"P(?!$)(\d+D)?(T(?!$)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.IGNORECASE)
# A member must be able to miss a heartbeat.
_LONGER_THAN = tuple(
    (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
    for kind in ("consumer", "share", "streams")
)


def validate_group_configs(texts: Mapping[str, str], broker_int: Callable[[str], int]) -> None:
    """Raises ConfigError unless these are valid settings of a group.

    `broker_int` gives the broker's value of a setting: the defaults and the bounds.
    """
    for name in texts:
        if name not in GROUP_CONFIGS:
            raise ConfigError(f"Unknown group config name: {name}")
    given: dict[str, ConfigValue] = {
        name: GROUP_CONFIGS[name].parse(text) for name, text in texts.items()
    }
    if _RESET in texts:
        _check_reset(texts[_RESET])
    for name, value in given.items():
        for least, most in _bounds(GROUP_CONFIGS[name]):
            assert isinstance(value, int)
            if least in BROKER_CONFIGS and value < broker_int(least):
                raise ConfigError(f"{name} must be greater than or equal to {least}")
            if most in BROKER_CONFIGS and value > broker_int(most):
                raise ConfigError(f"{name} must be less than or equal to {most}")
    for session, heartbeat in _LONGER_THAN:
        session_ms, heartbeat_ms = (
            int(texts[name]) if name in texts else broker_int(f"group.{name}")
            for name in (session, heartbeat)
        )
        if session_ms <= heartbeat_ms:
            raise ConfigError(f"{session} must be greater than {heartbeat}")


def _bounds(key: ConfigKey) -> list[tuple[str, str]]:
    """The broker settings with the least and the most that a group may set, which may not exist."""
    if not key.synonyms:
        return []
    group, kind, setting = key.synonyms[0].split(".", 2)
    setting = setting.removeprefix("num.")
    return [(f"{group}.{kind}.min.{setting}", f"{group}.{kind}.max.{setting}")]


def _check_reset(text: str) -> None:
    word, _, duration = text.partition(":")
    if text in ("earliest", "latest"):
        return
    if word != "by_duration" or not _DURATION.fullmatch(duration):
        reason = (
            f"Invalid value `{text}` for configuration {_RESET}. The value must be either "
            "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )
        raise ConfigError(f"Invalid value {text} for configuration {_RESET}: {reason}")
