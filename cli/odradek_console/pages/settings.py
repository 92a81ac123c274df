"""Settings of a topic or broker: where each value comes from, and a form that changes one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from odradek_console.cluster.view import ClusterView
from odradek_console.web.changes import Change, Row
from odradek_console.web.proposing import propose, refuse, text_of
from odradek_console.web.rendering import SESSION
from odradek_protocol.client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    ResourceType,
    alter_configs,
)
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.kafka_client import KafkaClient

HIDDEN = "(hidden)"
SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "this topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "this broker, changed at run time",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, changed at run time",
    ConfigSource.STATIC_BROKER_CONFIG: "server.properties of the broker",
    ConfigSource.DEFAULT_CONFIG: "Kafka's default",
    ConfigSource.GROUP_CONFIG: "this group",
}
OWN = {
    ResourceType.TOPIC: (ConfigSource.DYNAMIC_TOPIC_CONFIG,),
    ResourceType.BROKER: (ConfigSource.DYNAMIC_BROKER_CONFIG,),
}


@dataclass
class SettingRow:
    name: str
    value: str
    source: str
    own: bool  # can be set back
    changed: bool
    read_only: bool
    effect: str  # what a change of it does


@dataclass
class SettingsTable:
    rows: list[SettingRow]
    query: str
    only_changed: bool
    total: int


def settings_table(
    query: Mapping[str, str], view: ClusterView, kind: ResourceType, name: str
) -> SettingsTable:
    found = view.configs(kind, name)
    if isinstance(found, ClientError):
        raise found
    wanted = query.get("q", "").strip()
    only_changed = query.get("all") != "1"
    rows = [
        _row(kind, entry)
        for entry in sorted(found.values())
        if wanted.lower() in entry.name.lower()
        and (not only_changed or wanted or not entry.is_default)
    ]
    return SettingsTable(rows, wanted, only_changed, len(found))


def _row(kind: ResourceType, entry: ConfigEntry) -> SettingRow:
    if entry.read_only:
        effect = "after a restart"
    elif kind is ResourceType.BROKER:
        effect = "at run time"
    else:
        effect = "at once"
    return SettingRow(
        entry.name,
        _value(entry),
        SOURCES.get(entry.source, "unknown"),
        entry.source in OWN[kind],
        not entry.is_default,
        entry.read_only,
        effect,
    )


def _value(entry: ConfigEntry) -> str:
    if entry.sensitive:
        return HIDDEN
    return "" if entry.value is None else entry.value


async def propose_setting(
    request: web.Request, kind: ResourceType, name: str, subject: str, back: str
) -> web.StreamResponse:
    """The form has `name`, and `value` or `reset`."""
    session = request[SESSION]
    setting, value = await text_of(request, "name"), await text_of(request, "value")
    reset = bool(await text_of(request, "reset"))
    found = await session.run(session.view.configs, kind, name)
    if isinstance(found, ClientError):
        raise found
    entry = found.get(setting)
    if entry is None:
        refuse(request, back, f"There is no setting {setting!r}; choose one from the list.")
    if entry.read_only:
        refuse(request, back, f"{setting} is read when a broker starts; it cannot be changed here.")
    before = _value(entry) or "(not set)"
    after = "(default)" if reset else HIDDEN if entry.sensitive else value
    if after == before:
        refuse(request, back, f"{setting} has this value already.")
    operation = ConfigOperation.DELETE if reset else ConfigOperation.SET
    change = ConfigChange(setting, operation, None if reset else value)
    propose(
        request,
        Change(
            "change setting",
            subject,
            f"Change a setting of {subject}",
            (Row(setting, before, after),),
            partial(_alter, kind=kind, name=name, change=change),
            f"Changed {setting} of {subject}.",
            back,
            back,
        ),
    )


def _alter(client: KafkaClient, kind: ResourceType, name: str, change: ConfigChange) -> None:
    for error in alter_configs(client, kind, {name: [change]}).values():
        raise error
