"""Samples for the charts, every ten seconds: records per second, lag, round trips.

Kafka's protocol has no rates: the difference between two looks at the log ends is the rate, and
the time that a broker takes to answer the console's own request is the round trip.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from functools import partial

from odradek_console.cluster.lags import lags_of
from odradek_console.cluster.view import ClusterView, Sampled
from odradek_protocol.client.admin.offsets import LATEST, list_offsets
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.fan_out import fan_out
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.metadata import NO_LEADER
from odradek_protocol.client.routes import Broker
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

# Asking for the ends of 5,000 partitions takes 0.1 s; past that the largest clusters would pay
# for a chart with more requests than their clients make.
PARTITIONS_MAX = 5_000
GROUPS_MAX = 1_500

RECORDS = "records"
LAG = "lag"
ROUND_TRIP = "round trip"


def sample(view: ClusterView) -> None:
    """Adds one point to each series; a failure is kept as a sentence, and passes."""
    if not view.sampling.acquire(blocking=False):
        return  # the last one still waits for a broker
    try:
        values = _records(view) | _round_trips(view)
        view.history.add(time.time_ns() // 1_000_000, values | _lags(view))
        view.sampled.problem = None
    except ClientError as error:
        view.sampled.problem = str(error)
    finally:
        view.settle()
        view.sampling.release()


def _records(view: ClusterView) -> dict[Hashable, float]:
    topics = view.metadata().topics.values()
    places = [
        TopicPartition(topic.name, one.partition)
        for topic in topics
        for one in topic.partitions.values()
        if one.leader != NO_LEADER and not topic.internal
    ]
    asked = places[:PARTITIONS_MAX]
    answers = list_offsets(view.client, asked, LATEST)
    now_s = time.monotonic()
    ends = {place: end for place, end in answers.items() if isinstance(end, int)}
    before, view.sampled = (
        view.sampled,
        Sampled(ends, now_s, left_out=len(places) - len(asked)),
    )
    if not before.at_s:
        return {}
    elapsed_s = max(now_s - before.at_s, 0.001)
    rates: dict[str, float] = {}
    for place, end in ends.items():
        start = before.ends.get(place, end)
        rates[place.topic] = rates.get(place.topic, 0.0) + max(end - start, 0) / elapsed_s
    view.rates = rates
    by_topic: dict[Hashable, float] = {(RECORDS, t): rate for t, rate in rates.items() if rate}
    return {RECORDS: sum(rates.values()), **by_topic}


def _round_trips(view: ClusterView) -> dict[Hashable, float]:
    brokers = view.metadata().brokers
    asks = {broker: partial(_round_trip_ms, view.client, broker) for broker in brokers}
    return {
        (ROUND_TRIP, broker): found
        for broker, found in fan_out(asks).items()
        if not isinstance(found, ClientError)
    }


def _round_trip_ms(client: KafkaClient, broker: int) -> float:
    began = time.perf_counter()
    client.call(Broker(broker), ApiKey.METADATA, Struct(topics=[]))
    return (time.perf_counter() - began) * 1000


def _lags(view: ClusterView) -> dict[Hashable, float]:
    return {
        (LAG, group): float(lag.total)
        for group, lag in lags_of(view.client, view.groups()[:GROUPS_MAX]).items()
    }
