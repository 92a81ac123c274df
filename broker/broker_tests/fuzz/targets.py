"""The targets of fuzzing: each takes arbitrary bytes and may raise only the errors that it names.

Any other exception, an endless loop or a great deal of memory is a finding. `seeds` are inputs to
begin with: without one that is valid, a CRC would keep the fuzzer out. Where a format has a CRC,
the target makes it right first, since damage that the CRC finds is the boring case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import yaml
from crc32c import crc32c

from broker_tests.log.support import NOW_MS, TP, batch, open_manager
from broker_tests.sim.memory_disk import SimDisk
from odradek_api.base import InvalidManifestError
from odradek_api.parse import parse
from odradek_broker.log import (
    checkpoints,
    leader_epochs,
    partition_metadata,
    producer_snapshot,
    txn_index,
)
from odradek_broker.log.control import parse_marker
from odradek_broker.log.loading import LoadOptions, load_log
from odradek_broker.log.producer_state import ProducerBatch, ProducerEntry
from odradek_broker.log.validation import validate_for_append, validate_for_replica
from odradek_broker.metadata.record_codec import decode_record, encode_record
from odradek_broker.metadata.records import TopicRecord
from odradek_broker.model.log_config import LogConfig
from odradek_broker.raft.snapshot_files import (
    SnapshotError,
    encode_snapshot,
    read_metadata_records,
    read_voters,
)
from odradek_broker.raft.values import OffsetAndEpoch
from odradek_broker.raft.voters import VoterSet
from odradek_broker.runtime.properties import MalformedEscapeError, parse_properties
from odradek_broker.txn import log_records as txn_records
from odradek_protocol.byte_range import ByteRange
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages import api
from odradek_protocol.messages.kio_table import APIS
from odradek_protocol.records import compression
from odradek_protocol.records.record_batch import CRC_FROM, HEADER_BYTES, read_header
from odradek_protocol.records.records import read_records

CRC_AT = CRC_FROM - 4
CODEC_MAX = 4
LOG = LogConfig(segment_bytes=1_200, index_interval_bytes=150)
CLIENT_CONFIG = LogConfig()


@dataclass(frozen=True)
class Target:
    """One function under test."""

    name: str
    run: Callable[[bytes], None]
    allowed: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]

    def accepts(self, data: bytes) -> bool:
        """Whether the input was read, and not refused; any other error goes through."""
        try:
            self.run(data)
        except self.allowed:
            return False
        return True


def _requests(data: bytes) -> None:
    """The first bytes choose API and version; the rest is the body."""
    if len(data) < 2:
        return
    keys = sorted(APIS)
    key = keys[data[0] % len(keys)]
    versions = api.supported_versions(key)
    api.decode_request(key, versions[data[1] % len(versions)], data, 2)


def _responses(data: bytes) -> None:
    if len(data) < 2:
        return
    keys = sorted(APIS)
    key = keys[data[0] % len(keys)]
    versions = api.supported_versions(key)
    api.decode_response(key, versions[data[1] % len(versions)], data, 2)


def _headers(data: bytes) -> None:
    api.parse_request_header(data)


def _with_right_crc(data: bytes) -> bytes:
    """The CRCs of as many batches as the lengths in the data make up."""
    fixed = bytearray(data)
    at = 0
    while len(fixed) - at >= HEADER_BYTES:
        size = int.from_bytes(fixed[at + 8 : at + 12], "big", signed=True) + 12
        if not HEADER_BYTES <= size <= len(fixed) - at:
            break
        crc = crc32c(bytes(fixed[at + CRC_FROM : at + size]))
        fixed[at + CRC_AT : at + CRC_AT + 4] = crc.to_bytes(4, "big")
        at += size
    return bytes(fixed)


def _produce(data: bytes) -> None:
    """A batch of a client: checked as by a Produce request, and readable if it was accepted."""
    fixed = _with_right_crc(data)
    validate_for_append(ByteRange(fixed, 0, len(fixed)), CLIENT_CONFIG, NOW_MS)
    for record in read_records(fixed):
        assert record.value is None or isinstance(record.value, bytes)


def _replicate(data: bytes) -> None:
    for header in validate_for_replica(_with_right_crc(data)):
        assert header.size >= HEADER_BYTES


def _markers(data: bytes) -> None:
    if len(data) >= HEADER_BYTES:
        parse_marker(_with_right_crc(data))


def _decompress(data: bytes) -> None:
    if data:
        compression.decompress(1 + data[0] % CODEC_MAX, data[1:], 1 << 20)


def _recovery(data: bytes) -> None:
    """A segment that ends in these bytes; what is kept must be whole, and in the right order."""
    disk = SimDisk()
    log_dir = open_manager(disk).dirs[0]
    directory = f"/data/{TP}"
    disk.make_dir(directory)
    content = BATCHES[0] + _with_right_crc(data)
    disk.open(f"{directory}/{0:020d}.log", create=True).pwritev([content], 0)
    log = load_log(log_dir, TP, LOG, LoadOptions(clean=False), NOW_MS)
    kept = disk.read(log.segments[0].path())
    assert content.startswith(kept), "recovery has changed bytes"
    at = end = 0
    while at < len(kept):
        header = read_header(kept, at)
        assert header.base_offset == end, "recovery has kept a hole"
        end = header.next_offset
        at += header.size
    assert at == len(kept)
    assert log.log_end_offset == end


def _small_files(data: bytes) -> None:
    """Files that are taken anew from the log when they are damaged."""
    checkpoints.parse_offsets(data)
    leader_epochs.parse_leader_epochs(data)
    partition_metadata.parse_partition_metadata(data)
    txn_index.parse(data)


def _producer_snapshot(data: bytes) -> None:
    body = data[6:]
    producer_snapshot.state_from_snapshot(data[:2] + crc32c(body).to_bytes(4, "big") + body, 0)


def _metadata_snapshot(data: bytes) -> None:
    fixed = _with_right_crc(data)
    read_voters(fixed)
    for record in read_metadata_records(fixed):
        decode_record(record)


def _metadata_record(data: bytes) -> None:
    decode_record(data)


def _coordinator_records(data: bytes) -> None:
    txn_records.decode_key(b"\0\0" + data)
    txn_records.decode_value("t", data)


def _properties(data: bytes) -> None:
    for found in parse_properties(data.decode(errors="replace")):
        assert isinstance(found.name, str)


def _manifests(data: bytes) -> None:
    document = yaml.safe_load(data.decode(errors="replace"))
    parse(document, "fuzz.yaml")


def _request_seeds() -> tuple[bytes, ...]:
    keys = sorted(APIS)
    return tuple(bytes([i, v]) + bytes(24) for i in range(len(keys)) for v in (0, 3))


BATCHES = tuple(
    bytes(batch("a", "bb" * 20, codec=codec, key="k", base_offset=0)) for codec in range(5)
)


def _snapshot_seeds() -> tuple[bytes, ...]:
    entry = ProducerEntry(1)
    entry.batches.append(ProducerBatch(4, 9, 2, NOW_MS))
    return (producer_snapshot.encode_snapshot({7: entry}),)


def _metadata_seed() -> bytes:
    return encode_record(TopicRecord(name="orders", topic_id=UUID(int=7)))


REFUSED = (KafkaError, DecodeError)
MANIFEST = b"""apiVersion: odradek.dev/v1alpha1
kind: KafkaCluster
metadata: {name: main}
spec: {brokers: 3}
"""


def _all() -> Sequence[Target]:
    metadata = _metadata_seed()
    snapshot = encode_snapshot(OffsetAndEpoch(9, 2), VoterSet(), [metadata], NOW_MS)
    return (
        Target("requests", _requests, REFUSED, _request_seeds()),
        Target("responses", _responses, REFUSED, _request_seeds()),
        Target("headers", _headers, REFUSED, (bytes([0, 18, 0, 3, 0, 0, 0, 1, 255, 255, 0]),)),
        Target("produce", _produce, REFUSED, BATCHES),
        Target("replicate", _replicate, REFUSED, BATCHES),
        Target("markers", _markers, REFUSED, BATCHES),
        Target("decompress", _decompress, REFUSED,
               tuple(bytes([c - 1]) + compression.compress(c, b"abc" * 50) for c in range(1, 5))),
        Target("recovery", _recovery, (), BATCHES),
        Target("small-files", _small_files, (), (b"0\n1\norders 0 5\n", b"0\n1\n0 0\n")),
        Target("producer-snapshot", _producer_snapshot,
               (producer_snapshot.CorruptSnapshotError,), _snapshot_seeds()),
        Target("metadata-snapshot", _metadata_snapshot, (SnapshotError, *REFUSED), (snapshot,)),
        Target("metadata-record", _metadata_record, REFUSED, (metadata,)),
        Target("coordinator-records", _coordinator_records, REFUSED, (bytes(40),)),
        Target("properties", _properties, (MalformedEscapeError,),
               (b"a=b\\\n c\n# d\ne\\u0041: f\n",)),
        Target("manifests", _manifests, (InvalidManifestError, yaml.YAMLError), (MANIFEST,)),
    )  # fmt: skip


TARGETS = {target.name: target for target in _all()}
