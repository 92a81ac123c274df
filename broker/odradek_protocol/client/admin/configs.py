"""Settings of topics, brokers and groups: read with their sources, change one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from odradek_protocol.admin_codes import ConfigOperation as ConfigOperation
from odradek_protocol.admin_codes import ConfigSource as ConfigSource
from odradek_protocol.admin_codes import ResourceType as ResourceType
from odradek_protocol.client.errors import BrokerError, ClientError, error_in
from odradek_protocol.client.fan_out import fan_out
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import AnyBroker, Broker, Controller, Route
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

ALL_BROKERS = ""  # the name of the broker resource that holds the default of all brokers
RESOURCES_MAX = 500  # in one request: an answer has about 3 KB per topic


class ConfigEntry(NamedTuple):
    name: str
    value: str | None  # None: not set, or sensitive
    source: ConfigSource
    read_only: bool
    sensitive: bool

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT_CONFIG


class ConfigChange(NamedTuple):
    name: str
    operation: ConfigOperation
    value: str | None = None


Configs = dict[str, ConfigEntry]


def describe_configs(
    client: KafkaClient,
    kind: ResourceType,
    names: Iterable[str],
    keys: Iterable[str] | None = None,
) -> dict[str, Configs | ClientError]:
    """Resource → its settings by name (all, or those in `keys`), or the error.

    Each broker is asked for its own settings; all brokers are asked at once.
    """
    only = None if keys is None else sorted(keys)
    asks: dict[tuple[str, ...], Callable[[], Struct]] = {}
    for route, part in _routed(kind, list(names)):
        resources = [
            Struct(resource_type=kind, resource_name=name, configuration_keys=only) for name in part
        ]
        request = Struct(resources=resources)
        asks[part] = partial(client.call, route, ApiKey.DESCRIBE_CONFIGS, request)
    found: dict[str, Configs | ClientError] = {}
    for part, answer in fan_out(asks).items():
        if isinstance(answer, ClientError):
            found |= dict.fromkeys(part, answer)
            continue
        for one in answer.results:
            error = error_in(one)
            found[one.resource_name] = error or {c.name: _entry(c) for c in one.configs}
    return found


def alter_configs(
    client: KafkaClient,
    kind: ResourceType,
    changes: Mapping[str, Iterable[ConfigChange]],
    route: Route | None = None,
) -> dict[str, BrokerError]:
    """Resource → its changes; of one resource all are made, or none. Returns the refused ones.

    `route`: which broker checks the changes before the controller does; default: any one.
    """
    request = alter_request(kind, changes)
    return refused(client.call(route or Controller(), ApiKey.INCREMENTAL_ALTER_CONFIGS, request))


def alter_request(kind: ResourceType, changes: Mapping[str, Iterable[ConfigChange]]) -> Struct:
    """IncrementalAlterConfigs, for a caller that has a connection of its own."""
    resources = [
        Struct(
            resource_type=kind,
            resource_name=name,
            configs=[
                Struct(name=c.name, config_operation=c.operation, value=c.value) for c in entries
            ],
        )
        for name, entries in changes.items()
    ]
    return Struct(resources=resources)


def refused(answer: Struct) -> dict[str, BrokerError]:
    """The resources that were not altered."""
    return {
        one.resource_name: error for one in answer.responses if (error := error_in(one)) is not None
    }


def _routed(kind: ResourceType, names: list[str]) -> Iterator[tuple[Route, tuple[str, ...]]]:
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        for name in names:
            yield (Broker(int(name)) if name.isdecimal() else AnyBroker()), (name,)
        return
    for at in range(0, len(names), RESOURCES_MAX):
        yield AnyBroker(), tuple(names[at : at + RESOURCES_MAX])


def _entry(found: Struct) -> ConfigEntry:
    known = found.config_source in ConfigSource._value2member_map_
    source = ConfigSource(found.config_source) if known else ConfigSource.UNKNOWN
    return ConfigEntry(found.name, found.value, source, found.read_only, found.is_sensitive)
