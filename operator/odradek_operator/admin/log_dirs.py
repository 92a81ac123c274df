"""DescribeLogDirs, asked of each broker at its own address: which directories, how much room.

    ask_log_dirs(client, {0: Address("127.0.0.1", 9092)})
    -> {0: (LogDir("/data", False, 10**9, 10**8),)}

Metadata does not list fenced brokers, and a broker is often fenced because of its disks. So all
registered brokers are asked at once, with a short time limit; brokers that do not answer are left
out. No topic is asked for: the answer has some hundred bytes, however many partitions there are.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_operator.kafka.observed import LogDir
from odradek_protocol.client import Address, ClientError, KafkaClient
from odradek_protocol.client.admin.log_dirs import describe_log_dirs

TIMEOUT_S = 1.0


def ask_log_dirs(
    client: KafkaClient, addresses: Mapping[int, Address]
) -> dict[int, tuple[LogDir, ...]]:
    """Broker → its directories; only of brokers that answered."""
    answers = describe_log_dirs(client, addresses, with_replicas=False, timeout_s=TIMEOUT_S)
    return {
        broker: tuple(LogDir(d.path, d.offline, d.total_bytes, d.usable_bytes) for d in found)
        for broker, found in answers.items()
        if not isinstance(found, ClientError)  # nothing is known, and nothing is concluded
    }
