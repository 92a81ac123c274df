"""Admin requests without pause: reassignments, elections, DeleteRecords, topic churn.

Options: topics {name: partitions} to move about, trim {topic, partitions}, size (brokers).
A topic `churn` is deleted and created again under the same name; each life writes values of its
own, and reads the topic: nothing of an earlier life may be there (subject churn).
"""

from __future__ import annotations

import random
import time
from functools import partial

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from odradek_e2e.chaos.history import Recorder, now
from odradek_e2e.chaos.view import View
from odradek_e2e.chaos.workloads.job import Job, in_threads, place_of, value_of
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

REPLICAS = 3
TIMEOUT_S = 15.0
CHURN, CHURN_PARTITIONS, CHURN_RECORDS = "churn", 2, 50


def run(job: Job) -> None:
    in_threads(job, [partial(loop, job) for loop in (_move, _elect, _trim, _churn)])


def _move(job: Job) -> None:
    rng, view = job.rng("move"), View(job.brokers)
    recorder = job.recorder("admin", "moves")
    while not job.over.wait(rng.uniform(1.0, 4.0)):
        topic = rng.choice(sorted(job.options["topics"]))
        partition = rng.randrange(job.options["topics"][topic])
        replicas = rng.sample(range(1, int(job.options["size"]) + 1), REPLICAS)
        asked = Struct(partition_index=partition, replicas=replicas)
        request = Struct(
            timeout=5_000,
            topics=[Struct(name=topic, partitions=[asked])],
        )  # fmt: skip
        answer = view.ask(rng.choice(list(job.brokers)), ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0,
                          request)  # fmt: skip
        state = "ok" if answer is not None and answer.error_code == 0 else "unknown"
        recorder.note("moved", topic=topic, p=partition, replicas=replicas, st=state)


def _elect(job: Job) -> None:
    rng = job.rng("elect")
    recorder = job.recorder("admin", "elections")
    admin = AdminClient(job.client())
    while not job.over.wait(rng.uniform(2.0, 6.0)):
        topic = rng.choice(sorted(job.options["topics"]))
        asked = [TopicPartition(topic, p) for p in range(job.options["topics"][topic])]
        try:
            admin.elect_leaders(ElectionType.PREFERRED, asked).result(TIMEOUT_S)
            recorder.note("elected", topic=topic)
        except KafkaException:
            continue


def _trim(job: Job) -> None:
    rng = job.rng("trim")
    topic, partitions = job.options["trim"]
    notes = [job.recorder(topic, "trims"), job.recorder("offsets", "trims")]
    admin = AdminClient(job.client())
    while not job.over.wait(rng.uniform(2.0, 5.0)):
        partition = rng.randrange(int(partitions))
        asked = TopicPartition(topic, partition)
        try:
            latest = admin.list_offsets({asked: OffsetSpec.latest()}, request_timeout=5.0)
            end = latest[asked].result(TIMEOUT_S).offset
            below = int(end * rng.uniform(0.3, 0.9))
            for note in notes:
                note.note("trim", topic=topic, p=partition, o=below)
            one = TopicPartition(topic, partition, below)
            admin.delete_records([one], request_timeout=10.0)[one].result(TIMEOUT_S)
        except KafkaException:
            continue
        for note in notes:
            note.note("trimmed", topic=topic, p=partition, o=below, t=now())


def _churn(job: Job) -> None:
    rng = job.rng("churn")
    recorder = job.recorder("churn", "owner")
    life = 0
    while not job.over.wait(rng.uniform(0.2, 2.0)):
        life += 1
        admin = AdminClient(job.client())
        try:
            new = NewTopic(CHURN, CHURN_PARTITIONS, REPLICAS)
            admin.create_topics([new], request_timeout=10.0)[CHURN].result(TIMEOUT_S)
        except KafkaException as failed:
            if failed.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                recorder.note("unknown-life", life=life)
                _delete(admin, recorder, life)
            continue
        recorder.note("created", life=life)
        _live(job, recorder, life, rng)
        _delete(admin, recorder, life)


def _delete(admin: AdminClient, recorder: Recorder, life: int) -> None:
    try:
        admin.delete_topics([CHURN], request_timeout=10.0)[CHURN].result(TIMEOUT_S)
        recorder.note("deleted", life=life)
    except KafkaException as failed:
        recorder.note("not-deleted", life=life, why=failed.args[0].name())


def _live(job: Job, recorder: Recorder, life: int, rng: random.Random) -> None:
    """Writes and reads with clients that know nothing of an earlier life."""
    producer = Producer(job.producer(**{"message.timeout.ms": 20_000}))

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            partition, offset = place_of(message)
            recorder.note("acked", life=life, p=partition, o=offset, v=value_of(message).decode())

    for index in range(CHURN_RECORDS):
        value = f"{life} {index}".encode()
        producer.produce(CHURN, value, partition=index % CHURN_PARTITIONS, on_delivery=delivered)
    producer.flush(25.0)
    consumer = Consumer(job.consumer("churn"))
    consumer.assign([TopicPartition(CHURN, p, OFFSET_BEGINNING) for p in range(CHURN_PARTITIONS)])
    until = time.monotonic() + rng.uniform(0.5, 3.0)
    while time.monotonic() < until and not job.over.is_set():
        for message in consumer.consume(500, timeout=0.3):
            if message.error() is None:
                partition, offset = place_of(message)
                recorder.note("read", life=life, p=partition, o=offset,
                              v=value_of(message).decode())  # fmt: skip
    consumer.close()
