"""The broker's settings under Kafka's own names, from file, environment and flags.

    Settings.load(Path("server.properties"), os.environ, ["log.retention.hours=24"])

Later sources win: defaults < file < environment < flags. In the environment
`KAFKA_LOG_RETENTION_MS` is log.retention.ms (`_` is `.`, `__` is `_`, `___` is `-`). The dynamic
values that the controller keeps (cluster-wide, then for this broker) win over all of them; they
change at run time through `apply_dynamic`, so a long-lived reader reads a value again instead of
keeping it. Every failure is a ConfigError whose text is one line that names the setting.
"""

import builtins
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from odradek_broker.model.assignor_names import ASSIGNOR_NAMES
from odradek_broker.model.config_table import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigError,
    ConfigKey,
    ConfigValue,
    log_config_of,
    parse_topic_configs,
    topic_default,
)
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.listeners import Listeners, ListenerSettings, parse_listeners
from odradek_broker.runtime.quorum_addresses import (
    BOOTSTRAP_SERVERS,
    VOTERS,
    parse_bootstrap_servers,
    parse_voters,
)
from odradek_broker.runtime.settings_sources import (
    no_effect_warnings,
    read_environment,
    read_file,
    read_flags,
)
from odradek_protocol.admin_codes import ConfigSource

MIN_DEDUPE_BUFFER_PER_THREAD_BYTES = 1024 * 1024
LOG_CONFIGS_KEPT_MAX = 1000  # each is some 300 bytes; few clusters have that many different ones


class Synonym(NamedTuple):
    name: str
    text: str
    source: ConfigSource


# For consumer, share and streams groups: a setting, and the settings with its minimum and maximum.
GROUP_BOUNDS = (
    (
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    (
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    (
        "group.consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    (
        "group.share.session.timeout.ms",
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    (
        "group.share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    (
        "group.share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    (
        "group.share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    (
        "group.share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    (
        "group.share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    (
        "group.streams.session.timeout.ms",
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
    (
        "group.streams.heartbeat.interval.ms",
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    (
        "group.streams.assignment.interval.ms",
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
)
MOST_STANDBYS = "group.streams.max.standby.replicas"


class Settings:
    """Typed access by name: `settings.int("num.partitions")`. An unknown name is a KeyError."""

    def __init__(self, static: Mapping[str, str] | None = None, warnings: Sequence[str] = ()):
        self.static: Mapping[str, str] = _with_both_ids(static or {})
        self.warnings = tuple(warnings)
        self.dynamic_default: Mapping[str, str] = {}
        self.dynamic_broker: Mapping[str, str] = {}
        self._defaults = {
            name: key.default for name, key in BROKER_CONFIGS.items() if key.default is not None
        }
        self._resolve_all()
        self._check()
        self.listeners = self._parse_listeners()
        self.quorum_voters = parse_voters(self.list(VOTERS))
        self.quorum_bootstrap_servers = parse_bootstrap_servers(self.list(BOOTSTRAP_SERVERS))

    @classmethod
    def load(
        cls, file: Path | None, env: Mapping[str, str], flags: Sequence[str] = ()
    ) -> "Settings":
        """`flags` are `name=value` texts. Raises ConfigError."""
        static: dict[str, str] = {}
        warnings: list[str] = []
        if file is not None:
            static.update(read_file(file, env))
        static.update(read_environment(env, warnings))
        static.update(read_flags(flags))
        warnings += no_effect_warnings(static)
        return cls(static, warnings)

    # -- typed getters -----------------------------------------------------------------

    def int(self, name: str) -> builtins.int:
        value = self._values[name]
        assert isinstance(value, builtins.int), name
        return value

    def optional_int(self, name: builtins.str) -> builtins.int | None:
        return None if self._values[name] is None else self.int(name)

    def float(self, name: builtins.str) -> builtins.float:
        value = self._values[name]
        assert isinstance(value, builtins.float), name
        return value

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self._values[name]
        assert isinstance(value, builtins.bool), name
        return value

    def str(self, name: builtins.str) -> builtins.str:
        value = self._values[name]
        assert isinstance(value, builtins.str), name
        return value

    def optional_str(self, name: builtins.str) -> builtins.str | None:
        return None if self._values[name] is None else self.str(name)

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        """An unset list is empty."""
        value = self._values[name]
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def listener_text(
        self, listener: builtins.str, name: builtins.str, mechanism: builtins.str = ""
    ) -> builtins.str | None:
        """A setting of a listener: with its prefix (and mechanism), or the broker's own."""
        prefix = f"listener.name.{listener.lower()}."
        names = [f"{prefix}{mechanism.lower()}.{name}"] if mechanism else []
        for candidate in (*names, prefix + name):
            for layer in (self.dynamic_broker, self.dynamic_default, self.static):
                if candidate in layer:
                    return layer[candidate]
        return self.text(name) if name in BROKER_CONFIGS else None

    # -- values that depend on several settings -----------------------------------------

    @property
    def node_id(self) -> builtins.int:
        return self.int("node.id")

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        return tuple(Path(text) for text in self.list("log.dirs") or self.list("log.dir"))

    @property
    def metadata_log_dir(self) -> Path:
        text = self.optional_str("metadata.log.dir")
        return Path(text) if text else self.log_dirs[0]

    @property
    def super_users(self) -> tuple[builtins.str, ...]:
        """Principals like `User:admin`, separated by semicolons: a name may have a comma."""
        users = [user.strip() for user in self.static.get("super.users", "").split(";")]
        return tuple(user for user in users if user)

    @property
    def allow_if_no_acl_found(self) -> builtins.bool:
        return self.static.get("allow.everyone.if.no.acl.found", "").strip().lower() == "true"

    def log_config(self, overrides: Mapping[builtins.str, builtins.str]) -> LogConfig:
        """A topic's settings on top of this broker's defaults. Raises ConfigError.

        Names in `overrides` are the topic's (`retention.ms`); they were validated when they were
        set. Equal overrides give the same object, which topics and their partitions share.
        """
        given = frozenset(overrides.items())
        config = self._log_configs.get(given)
        if config is None:
            values = {**self._log_config_defaults, **parse_topic_configs(overrides)}
            config = log_config_of(values)
            if len(self._log_configs) >= LOG_CONFIGS_KEPT_MAX:
                self._log_configs.clear()
            self._log_configs[given] = config
        return config

    # -- where a value comes from (DescribeConfigs) --------------------------------------

    def text(self, name: builtins.str) -> builtins.str | None:
        """The effective value as text, as Kafka writes it."""
        return BROKER_CONFIGS[name].text_of(self._values[name])

    def synonyms(self, key: ConfigKey) -> "builtins.list[Synonym]":
        """Every value that is set for a setting or one of its synonyms, the effective one first.

        Kafka leaves out the entries before the first one of the strongest synonym; so an unset
        log.retention.ms has none, although its value comes from log.retention.hours.
        """
        given = self.values_given(*key.synonyms)
        asked = key.name if key.name in key.synonyms else "".join(key.synonyms[:1])
        return [*itertools.dropwhile(lambda synonym: synonym.name != asked, given)]

    def values_given(self, *names: builtins.str) -> "builtins.list[Synonym]":
        """All values of these names, the strongest first."""
        layers = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self.dynamic_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, self.static),
            (ConfigSource.DEFAULT_CONFIG, self._defaults),
        )
        return [
            Synonym(name, layer[name], source)
            for source, layer in layers
            for name in names
            if name in layer
        ]

    def topic_default_text(self, topic_key: ConfigKey) -> builtins.str | None:
        """The value of a topic setting that the topic does not override."""
        return topic_key.text_of(self._log_config_defaults[topic_key.name])

    def topic_default_source(self, topic_key: ConfigKey) -> ConfigSource:
        given = self.values_given(*topic_key.synonyms)
        return given[0].source if given else ConfigSource.DEFAULT_CONFIG

    # -- changes at run time --------------------------------------------------------------

    def apply_dynamic(
        self,
        default: Mapping[builtins.str, builtins.str],
        broker: Mapping[builtins.str, builtins.str],
    ) -> None:
        """Apply the controller's values (cluster-wide, and for this broker).

        They were validated before they were recorded. A value that this version no longer
        accepts raises ConfigError, and nothing changes.
        """
        self.check_dynamic(default, broker)
        self._set_dynamic(default, broker)

    def check_dynamic(
        self,
        default: Mapping[builtins.str, builtins.str],
        broker: Mapping[builtins.str, builtins.str],
    ) -> None:
        """Raises ConfigError if these dynamic values cannot be applied."""
        trial = Settings(self.static)
        trial._set_dynamic(default, broker)
        trial._check()

    def _set_dynamic(
        self,
        default: Mapping[builtins.str, builtins.str],
        broker: Mapping[builtins.str, builtins.str],
    ) -> None:
        self.dynamic_default, self.dynamic_broker = dict(default), dict(broker)
        self._resolve_all()

    # -- inside ---------------------------------------------------------------------------

    def _resolve_all(self) -> None:
        self._values = self._resolve()
        self._log_config_defaults = self._resolve_topic_defaults()
        self._log_configs: dict[frozenset[tuple[builtins.str, builtins.str]], LogConfig] = {}

    def _resolve(self) -> dict[builtins.str, ConfigValue]:
        values = {}
        for name, key in BROKER_CONFIGS.items():
            text = key.default
            for layer in (self.static, self.dynamic_default, self.dynamic_broker):
                text = layer.get(name, text)
            values[name] = key.parse(text)
        return values

    def _resolve_topic_defaults(self) -> dict[builtins.str, ConfigValue]:
        values = {}
        for name, key in TOPIC_CONFIGS.items():
            given = self.values_given(*key.synonyms)
            text = topic_default(key, given[0].name, given[0].text) if given else key.default
            values[name] = key.parse(text)
        return values

    def _check(self) -> None:
        """Checks that involve several settings."""
        if {"node.id", "broker.id"} <= self.static.keys() and self.int("node.id") != self.int(
            "broker.id"
        ):
            raise ConfigError("You must set `node.id` to the same value as `broker.id`.")
        retention = self.values_given(*BROKER_CONFIGS["log.retention.ms"].synonyms)[0]
        if builtins.int(retention.text) == 0:
            raise ConfigError(
                f"{retention.name} must be unlimited (-1) or, greater than or equal to 1"
            )
        if not self.log_dirs or "" in map(str, self.log_dirs):
            raise ConfigError("At least one log directory must be defined via log.dirs or log.dir.")
        if "broker" not in self.list("process.roles"):
            raise ConfigError(
                "process.roles: a node of Odradek is always a broker; use `broker` or "
                "`broker,controller`"
            )
        queued = self.int("queued.max.request.bytes")
        if 0 < queued < self.int("socket.request.max.bytes"):
            raise ConfigError(
                "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
            )
        threads = self.int("log.cleaner.threads")
        per_thread = self.int("log.cleaner.dedupe.buffer.size") // max(threads, 1)
        if threads and per_thread < MIN_DEDUPE_BUFFER_PER_THREAD_BYTES:
            raise ConfigError(
                "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread"
            )
        for user in self.super_users:
            if ":" not in user.strip(":"):
                raise ConfigError(
                    f"super.users: expected a string in format principalType:principalName but "
                    f"got {user}"
                )
        self._check_consumer_groups()

    def _check_consumer_groups(self) -> None:
        for name, least, most in GROUP_BOUNDS:
            if self.int(name) < self.int(least):
                raise ConfigError(f"{name} must be greater than or equal to {least}")
            if self.int(name) > self.int(most):
                raise ConfigError(f"{name} must be less than or equal to {most}")
        standbys = "group.streams.num.standby.replicas"
        if self.int(standbys) > self.int(MOST_STANDBYS):
            raise ConfigError(f"{standbys} must be less than or equal to {MOST_STANDBYS}")
        if self.int("group.consumer.heartbeat.interval.ms") >= self.int(
            "group.consumer.session.timeout.ms"
        ):
            raise ConfigError(
                "group.consumer.heartbeat.interval.ms must be less than "
                "group.consumer.session.timeout.ms"
            )
        for name in self.list("group.consumer.assignors"):
            if name not in ASSIGNOR_NAMES:
                raise ConfigError(
                    f"group.consumer.assignors: there is no assignor {name}; known are uniform, "
                    "range"
                )

    def _parse_listeners(self) -> Listeners:
        inter_broker_name = self.optional_str("inter.broker.listener.name")
        if inter_broker_name and "security.inter.broker.protocol" in self.static:
            raise ConfigError(
                "Only one of inter.broker.listener.name and security.inter.broker.protocol "
                "should be set."
            )
        return parse_listeners(
            ListenerSettings(
                listeners=self.list("listeners"),
                advertised=self.list("advertised.listeners") or None,
                protocol_map=self.str("listener.security.protocol.map"),
                protocol_map_is_set="listener.security.protocol.map" in self.static,
                inter_broker_name=inter_broker_name,
                inter_broker_protocol=self.str("security.inter.broker.protocol"),
                controller_names=self.list("controller.listener.names"),
                is_controller="controller" in self.list("process.roles"),
                further_inter_broker_names=self.list("odradek.inter.broker.listener.names"),
            )
        )


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """`broker.id` is the old name of `node.id`: whichever is set gives the other."""
    filled = dict(static)
    for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if other in filled:
            filled.setdefault(name, filled[other])
    return filled
