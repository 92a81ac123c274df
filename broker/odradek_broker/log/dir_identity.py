"""Which cluster and node a log directory belongs to, and the mark of a clean shutdown.

`meta.properties`:

    #
    #Sun Nov 16 12:00:00 UTC 2025
    cluster.id=MkU3OEVBNTcwNTJENDM2Qg
    directory.id=eVcmQ2aJTHGUZoqlVlePpw
    node.id=1
    version=1

A directory of another cluster or node is refused: writing into it would mix two brokers' data.
Ids are Kafka's: 16 bytes in URL-safe base64 without padding.
"""

import base64
import json
from dataclasses import dataclass
from uuid import UUID, uuid4

from odradek_broker.runtime.disk import Disk
from odradek_protocol.ids import ZERO_UUID

META_PROPERTIES = "meta.properties"
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

# Directory ids that are reserved in Kafka's metadata (lost, unassigned, migrating …).
_RESERVED_IDS_BELOW = 100


class LogDirConfigError(Exception):
    """The directory cannot be used as configured; the message names the setting and the reason."""


@dataclass(frozen=True, slots=True)
class DirIdentity:
    cluster_id: str
    node_id: int
    directory_id: UUID


def uuid_to_text(value: UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """ValueError if this is not an id of 16 bytes."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def new_directory_id() -> UUID:
    """Random; never one that starts with a dash, so that it can be given to a command."""
    while True:
        candidate = uuid4()
        if candidate.int >= _RESERVED_IDS_BELOW and not uuid_to_text(candidate).startswith("-"):
            return candidate


def read_identity(disk: Disk, path: str) -> DirIdentity | None:
    """None if the directory has none yet."""
    file = f"{path}/{META_PROPERTIES}"
    if not disk.exists(file):
        return None
    properties = {}
    for line in disk.read(file).decode("utf-8", "replace").splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            name, _, value = line.partition("=")
            properties[name.strip()] = value.strip()
    if properties.get("version") == "0":
        raise LogDirConfigError(
            f"{file}: version 0 is that of an Apache Kafka with ZooKeeper, whose directories this "
            "broker does not read. Nothing in it was changed. Start that Kafka with it, and copy "
            "its topics to a cluster of this broker with MirrorMaker 2"
        )
    if properties.get("version") != "1":
        raise LogDirConfigError(f"{file}: version {properties.get('version')}, expected 1")
    try:
        directory_id = properties.get("directory.id")
        return DirIdentity(
            properties["cluster.id"],
            int(properties.get("node.id", properties.get("broker.id", ""))),
            uuid_from_text(directory_id) if directory_id else ZERO_UUID,
        )
    except (KeyError, ValueError) as problem:
        raise LogDirConfigError(f"{file}: cannot be read: {problem!r}") from problem


def write_identity(disk: Disk, path: str, identity: DirIdentity) -> None:
    text = (
        "#\n"
        f"cluster.id={identity.cluster_id}\n"
        f"directory.id={uuid_to_text(identity.directory_id)}\n"
        f"node.id={identity.node_id}\n"
        "version=1\n"
    )
    disk.write(f"{path}/{META_PROPERTIES}", text.encode())


def claim_identity(disk: Disk, path: str, cluster_id: str, node_id: int) -> DirIdentity:
    """The identity of the directory, written if it has none; refused if it is of another node."""
    identity = read_identity(disk, path)
    if identity is not None:
        if identity.cluster_id != cluster_id:
            raise LogDirConfigError(
                f"log.dirs: {path} belongs to cluster {identity.cluster_id}, not {cluster_id}"
            )
        if identity.node_id != node_id:
            raise LogDirConfigError(
                f"log.dirs: {path} belongs to node.id {identity.node_id}, not {node_id}"
            )
        if identity.directory_id != ZERO_UUID:
            return identity
    identity = DirIdentity(cluster_id, node_id, new_directory_id())
    write_identity(disk, path, identity)
    return identity


def take_clean_shutdown_mark(disk: Disk, path: str) -> int | None:
    """The broker epoch in which the last shutdown was clean (-1: unknown), or None.

    Removes the mark, so that a crash from now on is noticed.
    """
    file = f"{path}/{CLEAN_SHUTDOWN}"
    if not disk.exists(file):
        return None
    try:
        epoch = int(json.loads(disk.read(file))["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        epoch = -1
    disk.remove(file)
    disk.sync_dir(path)
    return epoch


def put_clean_shutdown_mark(disk: Disk, path: str, broker_epoch: int) -> None:
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write(f"{path}/{CLEAN_SHUTDOWN}", content.encode())
