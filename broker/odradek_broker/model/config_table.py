"""The definition of each setting: type, default, valid values, and how it may be changed.

`BROKER_CONFIGS` and `TOPIC_CONFIGS` are the tables (their rows are in `broker_configs.py` and
`topic_configs.py`). Used by `runtime/settings.py` at start, by `controller/configs.py` to
validate changes, and by the DescribeConfigs handler. Errors have Apache Kafka's wording, because
clients show them: `Invalid value -1 for configuration num.partitions: Value must be at least 1`.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TypeAlias

from odradek_broker.model.broker_configs import BROKER_CONFIGS_TEXT, INTERNAL_BROKER_CONFIGS
from odradek_broker.model.log_config import LONG_MAX, LogConfig, TimestampType
from odradek_broker.model.topic_configs import TOPIC_CONFIGS_TEXT

INT_MAX = 2**31 - 1

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class ConfigError(ValueError):
    """An invalid value or an unknown name; the text names the setting."""


class ConfigType(IntEnum):
    """The numbers are those of the DescribeConfigs response."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    READ_ONLY = "ro"
    PER_BROKER = "broker"
    CLUSTER_WIDE = "cluster"


_INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_JAVA_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting. `valid` is the column of the table, see `broker_configs.py`."""

    name: str
    type: ConfigType
    default: str | None
    valid: str
    update: UpdateMode
    honoured: bool
    internal: bool  # not shown to clients unless it is set
    synonyms: tuple[str, ...]  # broker settings that define the value, the strongest first

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str | None) -> ConfigValue:
        """The typed, validated value. Raises ConfigError."""
        value = None if text is None else self._parse_type(text)
        self._validate(value)
        return value

    def _parse_type(self, raw: str) -> ConfigValue:
        text = raw.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._error(raw, "Expected value to be either true or false")
                return text.lower() == "true"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                limit = 1 << (_INTEGER_BITS[self.type] - 1)
                if not _JAVA_INTEGER.fullmatch(text) or not -limit <= int(text) < limit:
                    raise self._error(raw, f"Not a number of type {self.type.name}")
                return int(text)
            case ConfigType.DOUBLE:
                try:
                    return float(text)
                except ValueError:
                    raise self._error(raw, "Not a number of type DOUBLE") from None
            case ConfigType.LIST:
                # Kafka drops repeated values: "delete,delete" is "delete".
                parts = [part.strip() for part in text.split(",")] if text else []
                return tuple(dict.fromkeys(parts))
            case _:
                return text

    def _validate(self, value: ConfigValue) -> None:
        valid = self.valid
        if isinstance(value, tuple):
            self._validate_list(value)
        elif valid == "-":
            return
        elif valid == "nonempty":
            if value == "":
                raise self._error(value, "String must be non-empty")
        elif ".." in valid:
            self._validate_range(value)
        elif valid.startswith("~"):
            words = valid[1:].split("|")
            if str(value).upper() not in words:
                reason = f"String must be one of (case insensitive): {', '.join(words)}"
                raise self._error(value, reason)
        elif value is not None:
            self._validate_word(value)

    def _validate_range(self, value: ConfigValue) -> None:
        bounds, _, other = self.valid.partition("|")
        if value is None:
            if self.default is None:
                return
            raise self._error(None, "Value must be non-null")
        assert isinstance(value, int | float), self.name
        if other and value == float(other):
            return
        low, _, high = bounds.partition("..")
        too_low = bool(low) and value < float(low)
        too_high = bool(high) and value > float(high)
        if other and (too_low or too_high):
            raise self._error(value, f"Value must be between {low} and {high} or equal to {other}")
        if too_low:
            raise self._error(value, f"Value must be at least {low}")
        if too_high:
            raise self._error(value, f"Value must be no more than {high}")

    def _validate_word(self, value: ConfigValue) -> None:
        words = self.valid.split("|")
        if value not in words:
            raise self._error(value, f"String must be one of: {', '.join(words)}")

    def _validate_list(self, values: tuple[str, ...]) -> None:
        if self.valid == "-":
            return
        if self.valid == "throttled":
            self._validate_throttled(values)
            return
        if "" in values:
            raise ConfigError(f"Configuration '{self.name}' values must not be empty.")
        if self.valid != "nonempty":
            for value in values:
                self._validate_word(value)

    def _validate_throttled(self, values: tuple[str, ...]) -> None:
        """`*`, or pairs `partition:broker`."""
        if values in ((), ("*",)):
            return
        if not all(re.fullmatch(r"[0-9]+:[0-9]+", value) for value in values):
            reason = (
                f"{self.name} must be the literal '*' or a list of replicas in the following "
                "format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )
            raise self._error("[" + ", ".join(values) + "]", reason)

    def _error(self, value: ConfigValue, reason: str) -> ConfigError:
        shown = "null" if value is None else value
        if self.sensitive:
            shown = "[hidden]"
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {reason}")

    def text_of(self, value: ConfigValue) -> str | None:
        """The value as Kafka writes it: `true`, `a,b`, `0.5`."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return repr(value).replace("e+", "E").replace("e", "E")
        return str(value)


# Several broker settings for one value, in different units; the first that is set wins.
_SYNONYMS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
_SYNONYMS_OF = {name: group for group in _SYNONYMS for name in group}


def _rows(text: str) -> Iterable[tuple[str, ...]]:
    for line in text.splitlines():
        if line and not line.startswith("#"):
            yield tuple(line.split())


def _default(text: str) -> str | None:
    special = {"null": None, '""': "", "LONG_MAX": str(LONG_MAX), "INT_MAX": str(INT_MAX)}
    return special.get(text, text)


def _broker_table() -> dict[str, ConfigKey]:
    return {
        name: ConfigKey(
            name,
            ConfigType[kind.upper()],
            _default(default),
            valid,
            UpdateMode(update),
            sign == "+",
            name in INTERNAL_BROKER_CONFIGS,
            _SYNONYMS_OF.get(name, (name,)),
        )
        for sign, name, kind, default, valid, update in _rows(BROKER_CONFIGS_TEXT)
    }


def dynamic_table(text: str) -> dict[str, ConfigKey]:
    """The settings of a kind of resource, each with the broker setting that has its default."""
    return {
        name: ConfigKey(
            name,
            ConfigType[kind.upper()],
            _default(default),
            valid,
            UpdateMode.CLUSTER_WIDE,
            sign == "+",
            name.startswith("internal."),
            () if broker_name == "-" else _SYNONYMS_OF.get(broker_name, (broker_name,)),
        )
        for sign, name, kind, default, valid, broker_name in _rows(text)
    }


BROKER_CONFIGS: Mapping[str, ConfigKey] = _broker_table()
TOPIC_CONFIGS: Mapping[str, ConfigKey] = dynamic_table(TOPIC_CONFIGS_TEXT)

_MS_PER_UNIT = {".hours": 3_600_000, ".minutes": 60_000}


def topic_default(topic_key: ConfigKey, broker_name: str, text: str) -> str:
    """A broker's value as the topic setting shows it: 168 hours are 604800000 ms."""
    for unit, ms in _MS_PER_UNIT.items():
        if broker_name.endswith(unit):
            text = str(int(text) * ms)
    if topic_key.name == "retention.ms" and int(text) < 0:
        return "-1"
    return text


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to `name`, if one is."""
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return found[0] if found else None


def parse_topic_configs(texts: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Each value typed and validated by itself. An unknown name is a ConfigError."""
    values = {}
    for name, text in texts.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            raise ConfigError(f"Unknown topic config name: {name}")
        values[name] = key.parse(text)
    return values


def log_config_of(values: Mapping[str, ConfigValue]) -> LogConfig:
    """`values` has every honoured topic setting, typed: topic override or broker default."""
    policies = values["cleanup.policy"]
    assert isinstance(policies, tuple)
    fields: dict[str, ConfigValue] = {
        field: values[name] for field, name in _LOG_CONFIG_NAMES.items()
    }
    if values["internal.segment.bytes"] is not None:
        fields["segment_bytes"] = values["internal.segment.bytes"]
    by_name = {"CreateTime": TimestampType.CREATE_TIME}
    return LogConfig(
        **fields,  # type: ignore[arg-type]  # each is of its table type
        cleanup_delete="delete" in policies,
        cleanup_compact="compact" in policies,
        timestamp_type=by_name.get(
            str(values["message.timestamp.type"]), TimestampType.LOG_APPEND_TIME
        ),
    )


_RENAMED = {
    "timestamp_before_max_ms": "message.timestamp.before.max.ms",
    "timestamp_after_max_ms": "message.timestamp.after.max.ms",
    "unclean_leader_election": "unclean.leader.election.enable",
}
_DERIVED = {"cleanup_delete", "cleanup_compact", "timestamp_type"}
_LOG_CONFIG_NAMES = {
    field: _RENAMED.get(field, field.replace("_", "."))
    for field in LogConfig.__dataclass_fields__
    if field not in _DERIVED
}
