"""kcat (Debian's package, librdkafka 2.0): a broker as seen from a shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time

import pytest

from odradek_testkit import raw_requests as raw
from odradek_testkit.clients import CODECS, DEADLINE_S, create_topic, numbered
from odradek_testkit.connecting import for_kcat
from odradek_testkit.engines import Server

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None and not os.environ.get("ODRADEK_REQUIRE_TOOLS"),
    reason="needs `apt-get install -y kcat`",
)


def kcat(broker: Server, *args: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ["kcat", *for_kcat(broker), *args],
        input=stdin,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


def test_metadata(broker: Server, topic: str) -> None:
    create_topic(broker, topic, partitions=3)
    listed = json.loads(kcat(broker, "-L", "-J"))
    assert listed["brokers"] == [{"id": 1, "name": broker.bootstrap}]
    (found,) = [t for t in listed["topics"] if t["topic"] == topic]
    assert [(p["partition"], p["leader"]) for p in found["partitions"]] == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec(broker: Server, topic: str, codec: str) -> None:
    create_topic(broker, topic)
    lines = b"\n".join(numbered(1_000, size=50))
    kcat(broker, "-P", "-t", topic, "-p", "0", "-z", codec, stdin=lines)
    # Older librdkafka compresses only if the broker advertises the versions that it expects; if
    # not, it sends uncompressed batches without a warning.
    with raw.connect(broker) as connection:
        asked = raw.fetch_request(topic, 0, max_wait_ms=100, min_bytes=1)
        records = raw.fetched(connection.ask(asked))[2]
    assert CODECS[records[22] & 7] == codec
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == (
        lines + b"\n"
    )


def test_keys_headers_and_tombstones(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K", ":", "-Z", "-H", "trace=abc",
         stdin=b"k1:v1\nk2:\n")  # fmt: skip
    out = kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "0", "-c", "2", "-J", "-q")
    first, second = [json.loads(line) for line in out.splitlines()]
    assert (first["key"], first["payload"], first["headers"]) == ("k1", "v1", ["trace", "abc"])
    assert (second["key"], second["payload"], second["offset"]) == ("k2", None, 1)


def test_offsets_from_the_end_and_by_time(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin=b"\n".join(numbered(20)))
    middle_ms = int(time.time() * 1000) + 1
    while time.time() * 1000 <= middle_ms:
        pass
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin=b"later")
    found = kcat(broker, "-Q", "-t", f"{topic}:0:{middle_ms}").decode()
    assert found.split() == [topic, "[0]", "offset", "20"]
    out = kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "-2", "-e", "-q")
    assert out == numbered(20)[-1] + b"\nlater\n"
    out = kcat(broker, "-C", "-t", topic, "-p", "0", "-o", f"s@{middle_ms}", "-e", "-q")
    assert out == b"later\n"


def test_idempotent_producer(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    lines = b"\n".join(numbered(500))
    kcat(broker, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", stdin=lines)
    assert kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q") == lines + b"\n"
