"""Asks every broker all the time for the offsets of the partitions that it leads.

One thread per broker, with connections of its own; what a broker answers is noted with the times
before and after. Options: topics {name: partitions}.
"""

from __future__ import annotations

import time
from functools import partial

from odradek_e2e.chaos.history import now
from odradek_e2e.chaos.view import BAD_ANSWER
from odradek_e2e.chaos.workloads.job import Job, in_threads
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_testkit.ask import Questions

VERSION = 7
LATEST, EARLIEST = -1, -2
ASKED = (("hw", LATEST, 0), ("lso", LATEST, 1), ("start", EARLIEST, 0))
EVERY_S = 0.25


def run(job: Job) -> None:
    in_threads(job, [partial(_watch, job, number) for number in job.brokers])


def _watch(job: Job, broker: int) -> None:
    recorder = job.recorder("offsets", f"broker-{broker}")
    questions = Questions()
    while not job.over.wait(EVERY_S):
        for name, timestamp, isolation in ASKED:
            request = _request(job.options["topics"], timestamp, isolation)
            began = now()
            try:
                answer = questions.ask(job.brokers[broker], ApiKey.LIST_OFFSETS, VERSION, request)
            except BAD_ANSWER:
                questions.forget(job.brokers[broker])
                time.sleep(EVERY_S)
                break
            for topic in answer.topics:
                found = {
                    p.partition_index: [p.offset, p.leader_epoch]
                    for p in topic.partitions
                    if p.error_code == 0
                }
                if found:
                    recorder.note("offsets", what=name, topic=topic.name, of=found, b=broker,
                                  t0=began, t1=now())  # fmt: skip
    questions.close()


def _request(topics: dict[str, int], timestamp: int, isolation: int) -> Struct:
    return Struct(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            Struct(
                name=name,
                partitions=[
                    Struct(partition_index=p, current_leader_epoch=-1, timestamp=timestamp)
                    for p in range(count)
                ],
            )
            for name, count in topics.items()
        ],
    )
