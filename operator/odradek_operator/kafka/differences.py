"""Differences between a broker's current and desired settings: restart, or change at run time?

Kafka reports which settings can be changed at run time (DescribeConfigs: `read_only`), so there is
no table of them here, and both engines are handled alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_operator.kafka.actions import AlterBrokerConfig, Reason, listed
from odradek_operator.kafka.apache import METRICS
from odradek_operator.kafka.desired import (
    DISCOVERY_SETTINGS,
    IMAGE,
    RESTART,
    SECRETS,
    TEMPLATE,
    DesiredBroker,
    DesiredCluster,
)
from odradek_operator.kafka.observed import BrokerSetting, Observed, ObservedBroker, Phase

# Kafka changes these at run time only per broker, and their values differ between brokers.
_PER_BROKER = ("listener", "advertised.listeners", "ssl.", "broker.", "node.id", "log.dir")


def restart_reason(
    desired: DesiredBroker, found: ObservedBroker, settings: Mapping[str, BrokerSetting]
) -> Reason | None:
    """Why this broker has to be restarted; None if that is not necessary.

    `settings` is empty if the broker could not be asked. Then it is unknown what can be changed at
    run time, and only @-settings count, unless the broker cannot run at all. The same holds if its
    properties file is not visible at the moment.
    """
    names = {
        name
        for name in {*desired.settings, *found.started_with} - DISCOVERY_SETTINGS
        if desired.settings.get(name) != found.started_with.get(name)
    }
    if RESTART in names and not desired.settings.get(RESTART):
        names.discard(RESTART)  # the annotation was removed
    if found.file_unseen or (not settings and found.phase is not Phase.CRASHED):
        names = {name for name in names if name.startswith("@")}
    static = sorted(
        name
        for name in names
        if not (is_dynamic(name, settings) and desired.settings.get(name) is not None)
    )
    if not static:
        return Reason("VolumeResize", found.wants_restart) if found.wants_restart else None
    if RESTART in static:
        return Reason("RestartRequested", "a restart was requested")
    if IMAGE in static:
        return Reason(
            "ImageChanged", f"the image changes to {desired.settings[IMAGE] or 'default'}"
        )
    if TEMPLATE in static:
        return Reason("TemplateChanged", "resources or pod template changed")
    if SECRETS in static:
        return Reason("CertificateChanged", "a Secret that it mounts changed")
    if METRICS in static:
        return Reason("MetricsChanged", "the metrics port changed")
    return Reason("ConfigChanged", f"{listed(static)} changed")


def is_dynamic(name: str, settings: Mapping[str, BrokerSetting]) -> bool:
    """Whether the value can be changed for all brokers at run time."""
    entry = settings.get(name)
    return entry is not None and not entry.read_only and not name.startswith(_PER_BROKER)


def alter_config(desired: DesiredCluster, observed: Observed) -> AlterBrokerConfig | None:
    """The settings to change at run time, for all brokers at once."""
    assert observed.kafka is not None
    changes: dict[str, str | None] = {}
    for broker in desired.brokers.values():
        found = observed.brokers.get(broker.id)
        settings = observed.kafka.settings.get(broker.id)
        if found is None or found.phase is not Phase.READY or settings is None:
            continue
        for name, value in broker.properties.items():
            if is_dynamic(name, settings) and not same_value(settings[name].value, value):
                changes[name] = value
        for name in observed.dynamic_config - broker.properties.keys():
            if name in settings and settings[name].dynamic:
                changes[name] = None
    if not changes:
        return None
    texts = [
        f"{n}={v}" if v is not None else f"{n} reset to its default" for n, v in changes.items()
    ]
    return AlterBrokerConfig(
        changes, Reason("ConfigChanged", f"without a restart: {listed(texts)}")
    )


def same_value(found: str | None, wanted: str) -> bool:
    """Equal as strings or as numbers: Kafka reports 0.1 for 0.10, and a,b for "a, b"."""
    if found is None:
        return wanted == ""
    if found == wanted or found.lower() == wanted.lower() in ("true", "false"):
        return True
    try:
        return float(found) == float(wanted)
    except ValueError:
        return [v.strip() for v in found.split(",")] == [v.strip() for v in wanted.split(",")]
