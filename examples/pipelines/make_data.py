"""Generates the data of an example: `python make_data.py web-activity --bootstrap localhost:9092`.

The expected results follow from the same random seed: the tests compare with them.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

# Yesterday: brokers refuse records of the future, and delete those of last month.
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=20)
Record = tuple[str, str | None, bytes | None, datetime]  # topic, key, value, time


def web_activity(n: int = 2000, seed: int = 1) -> Iterator[Record]:
    """Visits of ten minutes, slightly out of order; one record of a hundred is not JSON."""
    rng = random.Random(seed)
    for i in range(n):
        at = START + timedelta(seconds=600 * i / n + rng.uniform(-5, 5))
        visitor, page = f"v{rng.randrange(50)}", rng.choice(["/", "/docs", "/blog", "/about"])
        visit: Any = {"visitor": visitor, "page": page, "at": at.isoformat()}
        if i % 100 == 50:
            yield "visits", visitor, b"\xff not json", at
        yield "visits", visitor, json.dumps(visit).encode(), at


def page_views(records: Iterator[Record]) -> Counter[tuple[str, str]]:
    """The expected windows: (minute, page) → views."""
    found: Counter[tuple[str, str]] = Counter()
    for _, _, value, at in records:
        if value is not None and value.startswith(b"{"):
            page = json.loads(value)["page"]
            found[at.replace(second=0, microsecond=0).isoformat(), page] += 1
    return found


def log_files(directory: Path, files: int = 5, lines: int = 100, seed: int = 1) -> int:
    """Log files, each renamed into place; one line of each does not parse. Returns the others."""
    rng = random.Random(seed)
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        made = []
        for i in range(lines):
            at = (START + timedelta(seconds=number * lines + i)).isoformat()
            level = rng.choice(["DEBUG", "INFO", "WARN", "ERROR"])
            made.append(f"{at}|host-{rng.randrange(4)}|{level}|request {number * lines + i}")
        made.insert(lines // 2, "Traceback (most recent call last):")
        partial = directory / f".{number}.partial"
        partial.write_text("\n".join(made) + "\n")
        partial.replace(directory / f"app-{number}.log")
    return files * lines


def orders(n: int = 500, seed: int = 1) -> Iterator[Record]:
    rng = random.Random(seed)
    for i in range(n):
        topic = rng.choice(["orders", "payments"])
        key = f"customer-{rng.randrange(20)}" if i % 10 else None
        yield topic, key, f"{topic} {i}".encode(), START + timedelta(milliseconds=37 * i)


def readings(n: int = 1000, seed: int = 1) -> Iterator[Record]:
    """Every tenth is sent twice."""
    rng = random.Random(seed)
    for i in range(n):
        at = START + timedelta(minutes=i)
        one = {"id": f"r{i}", "sensor": f"s{i % 7}", "celsius": round(rng.uniform(-5, 30), 1),
               "at": at.isoformat()}  # fmt: skip
        for _ in range(2 if i % 10 == 0 else 1):
            yield "readings", one["sensor"], json.dumps(one).encode(), at  # type: ignore[misc]


def advertisements(n: int = 400, seed: int = 1) -> Iterator[Record]:
    """Impressions, and clicks on every fourth; every eighth comes too late to count."""
    rng = random.Random(seed)
    for i in range(n):
        at = START + timedelta(seconds=i)
        ad, visitor = f"ad-{rng.randrange(5)}", f"v{i}"
        shown = {"ad": ad, "visitor": visitor, "shown_at": at.isoformat()}
        yield "impressions", ad, json.dumps(shown).encode(), at
        if i % 4 == 0:
            clicked = at + timedelta(seconds=90 if i % 8 == 0 else 10)
            yield "clicks", ad, avro(ad, visitor, clicked), clicked


def customers(n: int = 600, seed: int = 1) -> Iterator[Record]:
    """New customers, moves, and every eighth time one leaves: a record without a value."""
    rng = random.Random(seed)
    for i in range(n):
        key, at = f"customer-{rng.randrange(60)}", START + timedelta(seconds=i)
        one = {"name": f"name {i}", "city": rng.choice(["Prague", "Vienna", "Trieste"])}
        yield "customers", key, None if i % 8 == 7 else json.dumps(one).encode(), at


def purchases(n: int = 500, seed: int = 2) -> Iterator[Record]:
    """Of the customers above, after they have come and gone; some of them are unknown."""
    yield from customers()
    rng = random.Random(seed)
    for i in range(n):
        at = START + timedelta(minutes=15, seconds=i)
        one = {"id": f"p{i}", "customer": f"customer-{rng.randrange(70)}",
               "cents": rng.randrange(1, 10_000), "at": at.isoformat()}  # fmt: skip
        yield "purchases", one["customer"], json.dumps(one).encode(), at


def enriched(records: Iterator[Record]) -> dict[str, tuple[int, str | None, str]]:
    """The expected rows: id → cents, name, city."""
    known: dict[str | None, dict[str, str]] = {}
    found: dict[str, tuple[int, str | None, str]] = {}
    for topic, key, value, _ in records:
        one = json.loads(value) if value is not None else {}
        if topic == "customers":
            known[key] = one
        else:
            customer = known.get(key, {})
            found[one["id"]] = (one["cents"], customer.get("name"), customer.get("city", "unknown"))
    return found


def avro(ad: str, visitor: str, at: datetime) -> bytes:
    """A Click: two strings and a long, as Avro writes them."""
    return _text(ad) + _text(visitor) + _long(round(at.timestamp() * 1000))


def _text(text: str) -> bytes:
    return _long(len(text.encode())) + text.encode()


def _long(value: int) -> bytes:
    zigzag, out = (value << 1) ^ (value >> 63), bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


TOPICS = {
    "web-activity": web_activity,
    "mirror": orders,
    "late-data": readings,
    "join": advertisements,
    "compacted": customers,
    "declarative": web_activity,
    "enrich": purchases,
}


def send(bootstrap: str, records: Iterator[Record]) -> int:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    count, refused = 0, []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            refused.append(error)

    for topic, key, value, at in records:
        producer.produce(topic, value, key=key, timestamp=round(at.timestamp() * 1000),
                         headers=[("example", b"1")], on_delivery=delivered)  # fmt: skip
        producer.poll(0)
        count += 1
    if producer.flush(60) or refused:
        raise SystemExit(f"not all records were taken: {refused[:1]}")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("example", choices=[*TOPICS, "log-collection"])
    parser.add_argument("--bootstrap", default="localhost:9092")
    given = parser.parse_args()
    if given.example == "log-collection":
        print(f"{log_files(Path(__file__).parent / 'log-collection' / 'logs')} lines")
    else:
        print(f"{send(given.bootstrap, TOPICS[given.example]())} records")


if __name__ == "__main__":
    main()
