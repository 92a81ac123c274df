"""Compares the table with the topic: `python check.py --bootstrap localhost:9092`.

Both are reduced to the last value of each key; the table must have exactly these.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = dict[str, tuple[Any, Any]]  # id → name, city


def last_of_topic(bootstrap: str, topic: str = "customers") -> Rows:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check",
                         "enable.auto.commit": False, "enable.partition.eof": True})  # fmt: skip
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: Rows = {}
    ends = 0
    while ends < len(partitions):
        message = consumer.poll(30)
        if message is None:
            raise SystemExit(f"{bootstrap} does not answer")
        if message.error() is not None:
            ends += 1
            continue
        key = (message.key() or b"").decode()
        value = json.loads(message.value() or b"null")
        if value is None:
            found.pop(key, None)
        else:
            found[key] = (value["name"], value["city"])
    consumer.close()
    return found


def rows_of_table(spark: SparkSession, path: Path) -> Rows:
    rows = spark.read.format("delta").load(str(path)).collect()
    found = {row.id: (row.name, row.city) for row in rows}
    if len(found) != len(rows):
        raise SystemExit("a key is in the table twice")
    return found


def main() -> int:
    from odradek_spark.session.start import DELTA, LOCAL_MASTER, start_session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--table", type=Path, default=Path(__file__).parent / "table")
    given = parser.parse_args()
    there = last_of_topic(given.bootstrap)
    here = rows_of_table(start_session("check", LOCAL_MASTER, DELTA), given.table)
    wrong = [key for key in there.keys() | here.keys() if there.get(key) != here.get(key)]
    for key in sorted(wrong)[:10]:
        print(f"{key}: topic {there.get(key)}, table {here.get(key)}")
    print(f"{len(there)} keys in the topic, {len(here)} rows in the table, {len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
