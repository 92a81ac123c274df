"""The addresses at which the operator reaches running nodes, from the settings they run with.

While TLS is added to a cluster or removed from it, it has brokers of both kinds. Its nodes
are reached through the listener that all of them have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek_operator.kafka.links import (
    CONTROLLER_NAME,
    CONTROLLER_TLS_NAME,
    PROTOCOL_MAP,
    REPLICATION_NAME,
    addresses,
)

Settings = Mapping[str, str]
_INTERNAL = (REPLICATION_NAME, CONTROLLER_NAME, CONTROLLER_TLS_NAME)


class ClusterRoute(NamedTuple):
    bootstrap: str  # "host:port,host:port"; empty: no broker is running
    tls: bool = False


def operator_route(brokers: Iterable[Settings]) -> ClusterRoute:
    """Through the listener for brokers if all have it, else through an open one."""
    running = list(brokers)
    internal = [addresses(s).get(REPLICATION_NAME, "") for s in running]
    if running and all(internal):
        return ClusterRoute(",".join(internal), tls=True)
    return ClusterRoute(",".join(filter(None, map(_open_address, running))))


def internal_address(settings: Settings) -> str:
    """host:port of the listener with TLS for brokers, or of a controller's; empty: none."""
    found = addresses(settings)
    if REPLICATION_NAME in found:
        return found[REPLICATION_NAME]
    return found.get(CONTROLLER_TLS_NAME, "")


def mtls_address(settings: Settings) -> str:
    """host:port of the first listener that asks clients for a certificate; empty: none."""
    for name, address in addresses(settings).items():
        auth = settings.get(f"listener.name.{name.lower()}.ssl.client.auth")
        if name not in _INTERNAL and auth == "required":
            return address
    return ""


def given_address(settings: Settings) -> str:
    """host:port of the first listener that shows a certificate of another CA; empty: none."""
    for name, address in addresses(settings).items():
        store = settings.get(f"listener.name.{name.lower()}.ssl.keystore.location", "")
        if "/listener-" in store and "$" not in address:
            return address
    return ""


def _open_address(settings: Settings) -> str:
    protocols = _protocols(settings)
    for name, address in addresses(settings).items():
        if name != CONTROLLER_NAME and protocols.get(name, name) == "PLAINTEXT":
            return address
    return ""


def _protocols(settings: Settings) -> dict[str, str]:
    pairs = (one.partition(":") for one in settings.get(PROTOCOL_MAP, "").split(","))
    return {name: protocol for name, _, protocol in pairs if protocol}
