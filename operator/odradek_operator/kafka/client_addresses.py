"""Where clients reach the listeners of the brokers, for the status and for users. Does no I/O."""

from __future__ import annotations

from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kafka.links import HOST_IP, addresses
from odradek_operator.kafka.observed import Observed


def client_addresses(desired: DesiredCluster, observed: Observed) -> list[dict[str, str]]:
    """For each broker: listener → host:port, as clients get it in the metadata.

    A listener with node ports is missing as long as the broker's machine is not known.
    """
    found = []
    for number, broker in sorted(desired.brokers.items()):
        seen = observed.brokers.get(number)
        host = seen.host_ip if seen else ""
        known = addresses(broker.settings)
        found.append(
            {
                name: address.replace(HOST_IP, host)
                for name, address in known.items()
                if host or HOST_IP not in address
            }
        )
    return found
