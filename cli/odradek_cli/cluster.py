"""`odradek cluster`: the brokers of a cluster, and the health of its partitions.

`odradek cluster describe` prints one line per broker and a summary:

    cluster b2RyYWRlay1jbHVzdGVyMQ, 3 brokers, controller 2
      broker  address          rack  leaders  replicas
           1  127.0.0.1:21001  a           2         6
    6 partitions in 1 topics; preferred leaders 100 %; under-replicated 0; without a leader 0

`odradek cluster health` is for probes and scripts: its exit code says whether the cluster works.
`odradek cluster log-dirs` shows the directories of the brokers, their room and their replicas.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from odradek_cli.health import health
from odradek_cli.log_dirs import log_dirs
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek_protocol.client.metadata import Metadata

app = typer.Typer(help="Show the brokers and the health of a cluster.", no_args_is_help=True)
app.command()(health)
app.command("log-dirs")(log_dirs)

LISTED_MAX = 20  # under-replicated partitions in the table; --json has all of them


@dataclass
class BrokerHealth:
    id: int
    address: str
    rack: str | None
    leaders: int = 0
    replicas: int = 0


@dataclass
class PartitionHealth:
    topic: str
    partition: int
    leader: int  # -1: none
    replicas: list[int]
    isr: list[int]


@dataclass
class Health:
    """Counts over all partitions; the preferred leader is the first of a partition's replicas."""

    topics: int = 0
    partitions: int = 0
    preferred_leaders: int = 0
    under_replicated: list[PartitionHealth] = field(default_factory=list)
    offline: list[PartitionHealth] = field(default_factory=list)

    @property
    def preferred_share(self) -> float:
        return self.preferred_leaders / self.partitions if self.partitions else 1.0


@app.command()
def describe(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show brokers, racks, the controller, leaders per broker, under-replicated partitions."""
    from odradek_cli.client import connect
    from odradek_cli.quorum import describe_quorum

    with connect(bootstrap) as client:
        metadata = client.metadata()
        controller = describe_quorum(client)["leader"]
    brokers = {
        node.broker_id: BrokerHealth(node.broker_id, str(node.address), node.rack)
        for _, node in sorted(metadata.brokers.items())
    }
    state = survey(metadata, brokers)
    if as_json:
        print_json(_as_json(metadata.cluster_id, controller, brokers, state))
    else:
        _print(metadata.cluster_id, controller, brokers, state)


def survey(metadata: Metadata, brokers: dict[int, BrokerHealth]) -> Health:
    """Goes through all partitions; also counts leaders and replicas per broker."""
    health = Health(topics=len(metadata.topics))
    for name, topic in sorted(metadata.topics.items()):
        for number, partition in sorted(topic.partitions.items()):
            state = PartitionHealth(
                name, number, partition.leader, list(partition.replicas), list(partition.isr)
            )
            health.partitions += 1
            health.preferred_leaders += state.replicas[:1] == [state.leader]
            if len(state.isr) < len(state.replicas):
                health.under_replicated.append(state)
            if state.leader < 0:
                health.offline.append(state)
            elif state.leader in brokers:
                brokers[state.leader].leaders += 1
            for replica in state.replicas:
                if replica in brokers:
                    brokers[replica].replicas += 1
    return health


def _as_json(
    cluster_id: str, controller: int, brokers: dict[int, BrokerHealth], health: Health
) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        "controller": controller,
        "brokers": [asdict(broker) for broker in brokers.values()],
        **asdict(health),
        "preferred_leader_share": round(health.preferred_share, 4),
    }


def _print(
    cluster_id: str, controller: int, brokers: dict[int, BrokerHealth], health: Health
) -> None:
    print(f"cluster {cluster_id}, {len(brokers)} brokers, controller {controller}")
    print_table(
        [">broker", "address", "rack", ">leaders", ">replicas"],
        [(b.id, b.address, b.rack, b.leaders, b.replicas) for b in brokers.values()],
    )
    print(
        f"{health.partitions} partitions in {health.topics} topics; "
        f"preferred leaders {health.preferred_share:.0%}; "
        f"under-replicated {len(health.under_replicated)}; "
        f"without a leader {len(health.offline)}"
    )
    if health.under_replicated:
        print_table(
            ["under-replicated", ">leader", "replicas", "isr"],
            [
                (
                    f"{p.topic}-{p.partition}",
                    p.leader if p.leader >= 0 else "none",
                    ",".join(map(str, p.replicas)),
                    ",".join(map(str, p.isr)),
                )
                for p in health.under_replicated[:LISTED_MAX]
            ],
        )
        if (more := len(health.under_replicated) - LISTED_MAX) > 0:
            print(f"and {more} more (--json shows all)")
