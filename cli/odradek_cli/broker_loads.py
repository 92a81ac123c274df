"""What brokers measured, for `odradek rebalance` and `odradek capacity`: where it is asked for.

    --metrics 9404                      this port on the host of every broker
    --metrics 0=10.0.0.5:9404,…         as given
    --metrics none                      nobody is asked
    odradek -f DIR rebalance propose    the ports of the local runtime of these manifests

Without any of these the brokers' settings say where, but Apache Kafka has no such setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli import session
from odradek_cli.errors import UsageError
from odradek_cli.local_clusters import metrics_of
from odradek_cli.output import remarks

if TYPE_CHECKING:
    from odradek_operator.kafka.observed import Loads
    from odradek_protocol.client.kafka_client import KafkaClient

NO_METRICS = "none"
PORT_MAX = 65_535

Sample = Annotated[
    float, typer.Option("--sample", metavar="SECONDS", help="How long rates are measured.")
]
Metrics = Annotated[
    str,
    typer.Option(
        "--metrics",
        metavar="PORT|ID=HOST:PORT,…",
        help="Metrics ports of the brokers, which know their loads; one PORT: the same on every "
        "broker's host. Default: those in the brokers' settings, or in the local runtime of "
        "--file. none: only a sample.",
    ),
]
Window = Annotated[str, typer.Option("--window", help="Loads of the last minute, hour or day.")]


def loads_of(client: KafkaClient, metrics: str, window: str) -> Loads | None:
    """The brokers' measurements. Raises ValueError for an unknown window."""
    from odradek_operator.admin.loads import read_loads

    if metrics == NO_METRICS:
        return None
    addresses = _metrics_addresses(client, metrics)
    found = read_loads(addresses, window)
    if silent := sorted(addresses.keys() - found.seconds.keys()):
        names = ", ".join(f"{b} ({addresses[b]})" for b in silent)
        remarks().print(f"No loads from broker {names}: the growth of its logs is measured.")
    return found


def _metrics_addresses(client: KafkaClient, metrics: str) -> dict[int, str]:
    """Broker → host:port, as `--metrics` says, or as far as they can be found."""
    from odradek_operator.admin.loads import at_port, metrics_ports
    from odradek_protocol.client.admin.brokers import describe_cluster

    if metrics.isdecimal():
        if not 0 < int(metrics) <= PORT_MAX:
            raise UsageError(f"--metrics {metrics}: a port is between 1 and {PORT_MAX}")
        return at_port(client, int(metrics))
    given: dict[int, str] = {}
    for one in filter(None, map(str.strip, metrics.split(","))):
        broker, _, address = one.partition("=")
        if not broker.isdecimal() or ":" not in address:
            raise UsageError(
                f"--metrics {one}: expected a port, or ID=HOST:PORT, such as 0=127.0.0.1:9404"
            )
        given[int(broker)] = address
    if given:
        return given
    cluster, found = describe_cluster(client), metrics_ports(client)
    if files := session.current().files:
        found |= metrics_of([*files], cluster.cluster_id)
    if unknown := sorted(cluster.brokers.keys() - found.keys()):
        names = ", ".join(map(str, unknown))
        remarks().print(
            f"The metrics port of broker {names} is not known: the growth of its "
            "logs is measured. --metrics PORT names it."
        )
    return found
