"""`odradek consume --share GROUP`: a member of a share group (KIP-932), that is, of a queue.

A record is accepted after it was printed: if the command is killed in between, the record is
delivered again, to this or another member. SIGTERM and Ctrl-C accept what was printed, release the
other records that are locked for this member, and leave the group.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, NamedTuple

from odradek_cli.client import about, check_topic, connect
from odradek_cli.leaving import LeavesOnSignal
from odradek_cli.records import Headers, Show
from odradek_protocol.client.share_consumer import ShareConsumer, ShareRecord

if TYPE_CHECKING:
    from odradek_protocol.client.errors import ClientError
    from odradek_protocol.ids import TopicPartition

CREATE_TIME = 1  # the type of a timestamp, as confluent-kafka counts


class ShareMessage(NamedTuple):
    """A record with the methods of confluent-kafka's Message, for the printers."""

    read: ShareRecord

    def topic(self) -> str:
        return self.read.topic

    def partition(self) -> int:
        return self.read.partition

    def offset(self) -> int:
        return self.read.record.offset

    def timestamp(self) -> tuple[int, int]:
        return CREATE_TIME, self.read.record.timestamp

    def key(self) -> bytes | None:
        return self.read.record.key

    def headers(self) -> Headers:
        return [(name.decode(errors="replace"), value) for name, value in self.read.record.headers]

    def value(self) -> bytes | None:
        return self.read.record.value


def consume_in_share_group(
    bootstrap: str,
    topic: str,
    group: str,
    max_messages: int | None,
    until_end: bool,
    show: Show,
) -> None:
    """Ends after `max_messages`, or with `until_end` when no record is free."""
    with connect(bootstrap) as client:
        check_topic(client, topic)
        consumer = ShareConsumer(client, group, [topic], on_refused=_report)
        with LeavesOnSignal(signal.SIGTERM, signal.SIGINT) as leaving, about(f"group {group}"):
            try:
                left = max_messages
                while left is None or left > 0:
                    with leaving.whole():
                        records = consumer.poll(left)
                    for record in records[:left]:
                        with leaving.whole():
                            show(ShareMessage(record))
                            consumer.acknowledge(record)
                    left = None if left is None else left - len(records)
                    if until_end and consumer.drained:
                        return
            finally:
                with leaving.whole():
                    consumer.close()


def _report(place: TopicPartition, error: ClientError) -> None:
    print(
        f"odradek: {place}: records that were printed may be delivered again, because they were "
        f"not accepted: {error}",
        file=sys.stderr,
    )
