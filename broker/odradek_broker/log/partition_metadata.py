"""`partition.metadata`: which topic the files of a partition directory belong to.

    version: 0
    topic_id: eVcmQ2aJTHGUZoqlVlePpw

A topic that is deleted and created again has another id; its old files must not be taken for
the new ones.
"""

from uuid import UUID

from odradek_broker.log.dir_identity import uuid_from_text, uuid_to_text


def encode_partition_metadata(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> UUID | None:
    """None if the file is damaged; the topic id then comes from the cluster's metadata."""
    lines = dict(line.partition(": ")[::2] for line in data.decode("ascii", "replace").splitlines())
    try:
        return uuid_from_text(lines["topic_id"]) if lines["version"] == "0" else None
    except (KeyError, ValueError):
        return None
