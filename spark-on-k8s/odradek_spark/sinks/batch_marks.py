"""Which batches a writer of an exactly-once sink has committed. Does no I/O.

A batch is split into as many parts as there are writers, by a hash of the records' keys, so that a
repeated batch is split alike. Each part is one Kafka transaction, which contains the records and a
mark: an offset that is committed in the same transaction. So the records are visible if and only
if the mark says so, and a part that is run again finds the mark and writes nothing.

    transactional.id = group = odradek.<namespace>.<pipeline>.<writer>
                               odradek.<namespace>.<pipeline>._<sink>.<writer> of one of several
    offset of partition 0 of the sink's topic in that group: batch + 1
    its metadata: {"batch": 17, "checkpoint": "8f…", "driver": "c2…", "input": "9a…"}

`driver` is the driver that took the writers over when it started: tasks of an older driver, which
was paused or cut off and does not know of its successor, find another name and stop. `checkpoint`
says whose batch numbers these are, and `input` is a digest of the offsets that the batch reads.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from odradek_api.pipeline.outputs import MAIN

WRITERS = 4
TAKEN_OVER = "another driver of this pipeline has started and writes its sink; this one must end"


class MarkLostError(Exception):
    """It is not known whether a part of the batch in flight was written."""


class TakenOverError(Exception):
    """Another driver has taken this pipeline over."""


class Mark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    checkpoint: str
    driver: str
    batch: int = -1
    input: str = ""  # digest of the batch's offsets

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the query's checkpoint before it starts."""

    identity: str
    last_batch: int  # the last committed one; -1: none
    in_flight: bool  # a further one was planned, and perhaps written in part
    marked: bool  # all marks were written once


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One writer's share of one batch."""

    batch: int
    input: str
    checkpoint: str
    driver: str

    def mark(self) -> Mark:
        return Mark(checkpoint=self.checkpoint, driver=self.driver, batch=self.batch,
                    input=self.input)  # fmt: skip


def decode(text: str | None) -> Mark | None:
    """None: there is no mark, or what is there is not one of ours."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Mark)
    except msgspec.DecodeError:
        return None


def prefix(namespace: str, pipeline: str, query: str = MAIN) -> str:
    """No pipeline's name contains an underscore, so no other pipeline has this prefix."""
    of_sink = "" if query == MAIN else f"_{query}."
    return f"odradek.{namespace}.{pipeline}.{of_sink}"


def take_over(mark: Mark | None, checkpoint: Checkpoint, driver: str) -> Mark:
    """The mark with which a driver that starts claims one writer."""
    if mark is not None and mark.checkpoint == checkpoint.identity:
        return msgspec.structs.replace(mark, driver=driver)
    if checkpoint.marked and checkpoint.in_flight:
        batch = checkpoint.last_batch + 1
        raise MarkLostError(
            f"whether batch {batch} was written before the last crash is not known: its mark is "
            "gone from the consumer group (offsets.retention.minutes of the cluster, a deleted "
            "group, or a run with another checkpoint)"
        )
    return Mark(checkpoint=checkpoint.identity, driver=driver, batch=checkpoint.last_batch)


def next_step(mark: Mark | None, part: Part) -> Literal["write", "skip"]:
    """The next action of a task that has initialized its producer and then read the mark."""
    if mark is None or mark.driver != part.driver:
        raise TakenOverError(TAKEN_OVER)
    assert mark.checkpoint == part.checkpoint, "one driver, one checkpoint"
    if mark.batch < part.batch:
        return "write"
    if mark.batch == part.batch and mark.input != part.input:
        raise MarkLostError(
            f"batch {part.batch} was written from other offsets than the checkpoint has now: two "
            "drivers have written to the checkpoint"
        )
    return "skip"
