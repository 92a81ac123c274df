"""`odradek quorum`: the voters and observers of the metadata log, and how far each has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from odradek_cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek_protocol.client.admin.quorum import QuorumReplica
    from odradek_protocol.client.kafka_client import KafkaClient


def quorum(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the leader, the voters and the observers of the metadata quorum."""
    from odradek_cli.client import connect

    with connect(bootstrap) as client:
        described = describe_quorum(client)
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


def describe_quorum(client: KafkaClient) -> dict[str, Any]:
    """The state of the quorum; the lag of a node is counted from the leader's log end."""
    from odradek_cli.client import about
    from odradek_protocol.client.admin import quorum as admin

    with about("quorum"):
        state = admin.describe_quorum(client)
    ends = {voter.node_id: voter.log_end_offset for voter in state.voters}

    def described(node: QuorumReplica) -> dict[str, Any]:
        end = node.log_end_offset
        return {
            "id": node.node_id,
            "directory_id": None if node.directory_id is None else str(node.directory_id),
            "log_end_offset": end,
            "lag": max(ends.get(state.leader_id, end) - end, 0) if end >= 0 else None,
        }

    return {
        "leader": state.leader_id,
        "leader_epoch": state.leader_epoch,
        "high_watermark": state.high_watermark,
        "voters": [described(node) for node in state.voters],
        "observers": [described(node) for node in state.observers],
    }
