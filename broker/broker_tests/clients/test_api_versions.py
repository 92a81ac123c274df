"""ApiVersions advertises Apache Kafka's APIs and versions, and no API between brokers.

The table is what Apache Kafka 4.3.1 answers on a broker's listener (KRaft, combined mode); the same
test runs against it (ODRADEK_TEST_ENGINE=apache).
"""

from __future__ import annotations

import struct

import pytest

from odradek_protocol.messages.struct import Struct
from odradek_testkit import raw_requests as raw
from odradek_testkit.ask import Questions
from odradek_testkit.engines import RunningBroker, Server, on_apache
from odradek_testkit.ports import free_port

# API key: lowest and highest version.
APACHE = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6),
    11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1),
    18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5),
    25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3),
    32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3), 38: (1, 3),
    39: (1, 2), 40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1),
    46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2),
    57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0, 0), 66: (0, 2), 68: (0, 1),
    69: (0, 1), 74: (0, 1), 75: (0, 0), 76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2),
    80: (0, 1), 81: (0, 0), 83: (0, 0), 84: (0, 0), 85: (0, 1), 86: (0, 0), 87: (0, 1),
    88: (0, 0), 89: (0, 0), 90: (0, 1), 91: (0, 0), 92: (0, 0),
}  # fmt: skip
# Neither engine advertises telemetry (71, 72) as it is started here: Kafka needs a plugin for it,
# ours a subscription.

BROKER_HEARTBEAT = 63


def advertised(broker: Server) -> dict[int, tuple[int, int]]:
    with raw.connect(broker) as connection:
        answer = connection.ask(raw.api_versions_request())
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10:])}


def test_the_apis_of_apache_kafka_in_its_versions(broker: Server) -> None:
    assert advertised(broker) == APACHE


@pytest.mark.skipif(on_apache(), reason="Apache Kafka has a listener for controllers alone")
def test_inter_broker_apis_are_served_on_the_inter_broker_listener() -> None:
    settings = {
        "listeners": f"INSIDE://127.0.0.1:{free_port()},OUTSIDE://127.0.0.1:{free_port()}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    heartbeat = Struct(
        broker_id=1,
        broker_epoch=-5,
        current_metadata_offset=0,
        want_fence=False,
        want_shut_down=False,
    )
    with RunningBroker(settings) as broker:
        questions = Questions()
        listeners = broker.ready["listeners"]
        answer = questions.ask(listeners["INSIDE"], BROKER_HEARTBEAT, 0, heartbeat)
        assert answer.error_code == 77  # STALE_BROKER_EPOCH
        with pytest.raises(ConnectionError):
            questions.ask(listeners["OUTSIDE"], BROKER_HEARTBEAT, 0, heartbeat)
        questions.close()


def test_version_minus_1_is_answered_in_version_0(broker: Server) -> None:
    """It is the broker's own mark of a SASL token without headers (found by fuzzed frames)."""
    with raw.connect(broker) as connection:
        answer = connection.ask(raw.api_versions_request(-1, correlation_id=7))
    assert struct.unpack_from(">ih", answer) == (7, 35)  # UNSUPPORTED_VERSION
