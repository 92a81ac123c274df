"""`odradek quorum`: who votes about the metadata of the cluster, and how far each node has read.

librdkafka has no call for this and for reassignments; kafka-python has, see `kafka_admin`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

REQUEST_TIMEOUT_MS = 30_000


def quorum(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the leader, the voters and the observers of the metadata quorum."""
    described = describe_quorum(bootstrap)
    if as_json:
        print_json(described)
        return
    print(
        f"leader {described['leader']}, epoch {described['leader_epoch']}, "
        f"high watermark {described['high_watermark']}"
    )
    rows = [
        (
            node["id"],
            "leader" if node["id"] == described["leader"] else role,
            node["log_end_offset"],
            node["lag"],
            node["directory_id"],
        )
        for role, nodes in (("voter", described["voters"]), ("observer", described["observers"]))
        for node in nodes
    ]
    print_table([">node", "role", ">log end", ">lag", "directory"], rows)


def describe_quorum(bootstrap: str) -> dict[str, Any]:
    """The state of the quorum; a node's lag is what the leader has beyond it."""
    with kafka_admin(bootstrap, "quorum") as admin:
        answer = admin.describe_metadata_quorum()
    state = answer["topics"][0]["partitions"][0]
    if state["error"]:
        raise CliError(f"quorum: {state['error']}")
    leader_id = state["leader_id"]
    voters = sorted(state["current_voters"], key=lambda node: node["replica_id"])
    ends = {node["replica_id"]: node["log_end_offset"] for node in voters}

    def described(node: dict[str, Any]) -> dict[str, Any]:
        end = node["log_end_offset"]
        directory = node.get("replica_directory_id")
        return {
            "id": node["replica_id"],
            "directory_id": None if directory is None else str(directory),
            "log_end_offset": end,
            "lag": max(ends.get(leader_id, end) - end, 0) if end >= 0 else None,
        }

    return {
        "leader": leader_id,
        "leader_epoch": state["leader_epoch"],
        "high_watermark": state["high_watermark"],
        "voters": [described(node) for node in voters],
        "observers": [
            described(node)
            for node in sorted(state["observers"], key=lambda node: node["replica_id"])
        ],
    }


@contextmanager
def kafka_admin(bootstrap: str, what: str) -> Iterator[KafkaAdminClient]:
    """kafka-python's admin client; its errors become one sentence about `what`."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    from odradek_cli.client import connect

    connect(bootstrap)  # says so when no broker answers; kafka-python would leave sockets open
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # our one sentence says it once
    admin = KafkaAdminClient(
        bootstrap_servers=bootstrap.split(","),
        client_id="odradek",
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )
    try:
        yield admin
    except KafkaError as error:
        raise CliError(f"{what}: {error}") from error
    finally:
        admin.close()
