"""Reading without a group: where it begins, the last records of a topic, and the loop itself."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from odradek_cli.errors import CliError, UsageError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

BEGINNING = ("beginning", "earliest", "oldest")
END = ("end", "latest", "newest")


@dataclass(frozen=True)
class Start:
    """Where reading begins; with none of the last four, at the end."""

    partitions: list[int] | None = None  # None: all
    from_beginning: bool = False
    offset: int | None = None
    last: int | None = None  # so many records before the end, of all partitions together
    at_ms: int | None = None

    @classmethod
    def parse(
        cls,
        partitions: list[int] | None,
        from_beginning: bool,
        offset: str | None,
        timestamp: str | None,
    ) -> Start:
        if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
            raise UsageError("--from-beginning, --offset and --timestamp exclude each other")
        if timestamp is not None:
            return cls(partitions, at_ms=parse_time(timestamp))
        if offset is None or offset in END:
            return cls(partitions, from_beginning)
        if offset in BEGINNING:
            return cls(partitions, from_beginning=True)
        try:
            number = int(offset)
        except ValueError:
            raise UsageError(
                f"--offset {offset}: expected beginning, end, an offset, or -5 for the last five"
            ) from None
        if offset.startswith("-"):
            return cls(partitions, last=-number)
        return cls(partitions, offset=number)


def parse_time(text: str, option: str = "--timestamp") -> int:
    """Milliseconds since 1970 of "1767225600000" or an ISO time (UTC unless it says otherwise)."""
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: expected a time such as 2026-01-31T12:00:00") from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration_ms(text: str, option: str = "--by-duration") -> int:
    """90s, 30m, 12h, 7d, or a duration of ISO 8601: P1DT2H30M."""
    units = {"D": 86_400, "H": 3_600, "M": 60, "S": 1}
    iso = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", text.upper())
    short = re.fullmatch(r"(\d+)([SMHD])", text.upper())
    if short is not None:
        return int(short[1]) * units[short[2]] * 1000
    if iso is not None and any(iso.groups()):
        seconds = sum(int(n) * units[u] for n, u in zip(iso.groups(), "DHMS", strict=True) if n)
        return seconds * 1000
    raise UsageError(f"{option} {text}: expected 90s, 30m, 12h, 7d or PT1H30M")


def partitions_of(consumer: Consumer, topic: str, asked: list[int] | None) -> list[int]:
    from odradek_cli.librdkafka import TIMEOUT_S

    found = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise CliError(f"topic {topic}: {found.error.str()} ({found.error.name()})")
    for number in asked or []:
        if number not in found.partitions:
            raise CliError(
                f"--partition {number}: topic {topic} has {len(found.partitions)} partitions"
            )
    return asked or sorted(found.partitions)


def starting_points(
    consumer: Consumer, topic: str, numbers: list[int], start: Start
) -> list[TopicPartition]:
    """The first offset to read of each partition."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    from odradek_cli.librdkafka import TIMEOUT_S

    if start.at_ms is not None:
        asked = [TopicPartition(topic, number, start.at_ms) for number in numbers]
        return consumer.offsets_for_times(asked, timeout=TIMEOUT_S)
    if start.offset is not None:
        return [TopicPartition(topic, number, start.offset) for number in numbers]
    offset = OFFSET_BEGINNING if start.from_beginning else OFFSET_END
    return [TopicPartition(topic, number, offset) for number in numbers]


def last_records(
    consumer: Consumer, topic: str, numbers: list[int], count: int
) -> tuple[list[Message], list[TopicPartition]]:
    """The last `count` records of these partitions together, by time; and where they end.

    Offsets are not records: compaction leaves gaps, and markers of transactions take offsets. So
    where too few records came, reading begins again from further back.
    """
    from confluent_kafka import TopicPartition

    from odradek_cli.librdkafka import TIMEOUT_S

    bounds = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=TIMEOUT_S)
        for number in numbers
    }
    ends = {number: high for number, (_, high) in bounds.items()}
    newest: dict[int, deque[Message]] = {}
    lacking, span = [n for n, (low, high) in bounds.items() if count and high > low], count
    while lacking:
        starts = {n: max(bounds[n][0], ends[n] - span) for n in lacking}
        consumer.assign([TopicPartition(topic, n, at) for n, at in starts.items()])
        newest |= {n: deque(maxlen=count) for n in lacking}
        _read_up_to(consumer, ends, newest, set(lacking))
        lacking = [n for n in lacking if len(newest[n]) < count and starts[n] > bounds[n][0]]
        span *= 8
    found = [message for records in newest.values() for message in records]
    found.sort(key=lambda m: (m.timestamp()[1], m.partition(), m.offset()))
    rest = [TopicPartition(topic, number, at) for number, at in ends.items()]
    return found[-count:] if count else [], rest


def _read_up_to(
    consumer: Consumer, ends: dict[int, int], newest: dict[int, deque[Message]], reading: set[int]
) -> None:
    """Reads these partitions up to their ends; an open transaction moves an end forward."""
    while reading:
        message = consumer.poll(1.0)
        if message is None:
            continue
        number, offset = message.partition(), message.offset()
        assert number is not None
        ended = is_end(message)
        if number not in reading or offset is None:
            continue
        if ended:
            ends[number] = min(ends[number], offset)
        elif offset < ends[number]:
            newest[number].append(message)
        if ended or offset >= ends[number] - 1:
            reading.discard(number)


def is_end(message: Message) -> bool:
    """Whether this is the end of a partition, not a record; other errors are raised, or passed."""
    from confluent_kafka import KafkaError

    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if not error.retriable():
        raise CliError(f"topic {message.topic()}: {error.str()} ({error.name()})")
    return False


def read(
    consumer: Consumer, owned: set[int], max_messages: int | None, until_end: bool
) -> Iterator[Message]:
    """`owned` has the partitions that are assigned; in a group they change meanwhile."""
    ended: set[int | None] = set()
    count = 0
    while max_messages is None or count < max_messages:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if is_end(message):
            ended.add(message.partition())
            if until_end and owned and owned <= ended:
                return
        elif message.error() is None:
            count += 1
            yield message
