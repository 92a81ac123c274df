"""`odradek cluster health`: whether a cluster works, as an exit code for probes and scripts.

0  healthy       every broker and every replica is there
3  degraded      all partitions can be read and written; something is missing
4  unavailable   some partitions cannot be read, or not be written with acks=all; or there is no
                 controller
1  no broker answers
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli.errors import StateError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from odradek_cli.output import print_json

if TYPE_CHECKING:
    from odradek_protocol.client.kafka_client import KafkaClient
    from odradek_protocol.client.metadata import Metadata

HEALTHY, DEGRADED, UNAVAILABLE = "healthy", "degraded", "unavailable"
EXIT_CODES = {HEALTHY: 0, DEGRADED: 3, UNAVAILABLE: 4}
LISTED_MAX = 10  # partitions in one line; --json has all
PROBE_TIMEOUT_S = 5.0  # for each of the questions: a broker that hangs must not hang a probe


@dataclass
class ClusterHealth:
    """The problems; partitions as topic-number."""

    brokers: int = 0
    partitions: int = 0
    controller: int = -1  # -1: none
    fenced_brokers: list[int] = field(default_factory=list)
    offline_directories: list[str] = field(default_factory=list)
    without_leader: list[str] = field(default_factory=list)
    under_min_isr: list[str] = field(default_factory=list)
    under_replicated: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.controller < 0 or self.without_leader or self.under_min_isr:
            return UNAVAILABLE
        missing = self.fenced_brokers or self.offline_directories or self.under_replicated
        return DEGRADED if missing else HEALTHY

    def sentences(self) -> list[str]:
        said = ["there is no controller"] if self.controller < 0 else []
        for what, named in (
            ("partitions without a leader", self.without_leader),
            ("partitions with fewer replicas in sync than min.insync.replicas", self.under_min_isr),
            ("under-replicated partitions", self.under_replicated),
            ("brokers that are registered and do not run", list(map(str, self.fenced_brokers))),
            ("log directories that are offline", self.offline_directories),
        ):
            if named:
                more = f" and {len(named) - LISTED_MAX} more" if len(named) > LISTED_MAX else ""
                said.append(f"{len(named)} {what}: {', '.join(named[:LISTED_MAX])}{more}")
        return said


def health(
    allow_degraded: Annotated[
        bool,
        typer.Option(
            "--allow-degraded", help="Exit code 0 as long as everything can be read and written."
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Say whether the cluster works. Exit code: 0 healthy, 3 degraded, 4 unavailable."""
    from odradek_cli.client import connect

    with connect(bootstrap) as client:
        found = look(client)
    if as_json:
        print_json({"state": found.state, **asdict(found)})
    else:
        print(f"{found.state}: {found.brokers} brokers, {found.partitions} partitions")
        for sentence in found.sentences():
            print(f"  {sentence}")
    code = EXIT_CODES[found.state]
    if code and not (allow_degraded and found.state == DEGRADED):
        raise StateError(f"the cluster is {found.state}", code)


def look(client: KafkaClient, metadata: Metadata | None = None) -> ClusterHealth:
    """`metadata`: of all topics, if the caller has it already."""
    from odradek_protocol.client.admin.brokers import describe_cluster
    from odradek_protocol.client.admin.log_dirs import describe_log_dirs
    from odradek_protocol.client.errors import ClientError

    metadata = metadata or client.metadata()
    found = survey(metadata, min_isr_of(client, metadata))
    found.controller = _quorum_leader(client)
    found.fenced_brokers = [
        b.broker_id for b in describe_cluster(client).brokers.values() if b.fenced
    ]
    answers = describe_log_dirs(client, with_replicas=False, timeout_s=PROBE_TIMEOUT_S)
    for broker_id, answer in answers.items():
        if isinstance(answer, ClientError):
            found.offline_directories.append(f"those of broker {broker_id} ({answer})")
        else:
            found.offline_directories += [
                f"{one.path} of broker {broker_id}" for one in answer if one.offline
            ]
    return found


def survey(metadata: Metadata, min_isr: dict[str, int]) -> ClusterHealth:
    """Goes through all partitions, those of internal topics too."""
    found = ClusterHealth(brokers=len(metadata.brokers))
    for name, topic in sorted(metadata.topics.items()):
        for number, partition in sorted(topic.partitions.items()):
            place = f"{name}-{number}"
            found.partitions += 1
            in_sync, replicas = len(partition.isr), len(partition.replicas)
            if partition.leader < 0:
                found.without_leader.append(place)
            # As Kafka counts: a topic with fewer replicas than the setting needs all of them.
            if in_sync < min(min_isr.get(name, 1), replicas):
                found.under_min_isr.append(place)
            if in_sync < replicas:
                found.under_replicated.append(place)
    return found


def min_isr_of(client: KafkaClient, metadata: Metadata) -> dict[str, int]:
    """min.insync.replicas of the topics in which a replica is missing: of the others it is 1."""
    from odradek_protocol.client.admin.configs import ResourceType, describe_configs
    from odradek_protocol.client.errors import ClientError

    name = "min.insync.replicas"
    lacking = [
        topic
        for topic, found in metadata.topics.items()
        if any(len(p.isr) < len(p.replicas) for p in found.partitions.values())
    ]
    answers = describe_configs(client, ResourceType.TOPIC, lacking, [name]) if lacking else {}
    return {
        topic: int(answer[name].value or 1)
        for topic, answer in answers.items()
        if not isinstance(answer, ClientError) and name in answer
    }


def _quorum_leader(client: KafkaClient) -> int:
    from odradek_protocol.client.admin.quorum import describe_quorum
    from odradek_protocol.client.errors import ClientError

    try:
        return describe_quorum(client).leader_id
    except ClientError:
        return -1
