"""Spark's work with the exactly-once sink, in small: a program that tests kill at any time.

    python -m spark_tests.parts_driver BOOTSTRAP TOPIC CHECKPOINT

Batches are planned and committed in files, as in Spark's checkpoint; each part is written by a
process of its own, which is started again if it fails. It ends after the batch in which the file
`enough` appears. Exit codes: 0, REPLACED (another driver has taken over), CONFLICT (another one has
written the same file of the checkpoint, which Spark notices in the same way).
"""

from __future__ import annotations

import os
import random
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from odradek_spark.sinks.batch_marks import Checkpoint, Part, TakenOverError
from odradek_spark.sinks.exactly_once import Target, claim, write_part

WRITERS, ATTEMPTS = 3, 8
REPLACED, CONFLICT, GIVEN_UP = 9, 10, 11


def ids(batch: int, writer: int) -> list[int]:
    """The same in each repetition; some parts are empty."""
    count = random.Random(f"{batch}-{writer}").choice([0, 1, 50, 400])
    return [batch * 10_000 + writer * 1000 + n for n in range(count)]


def newest(directory: Path) -> int:
    return max((int(path.name) for path in directory.iterdir()), default=-1)


def main(bootstrap: str, topic: str, checkpoint: Path) -> int:
    offsets, commits = checkpoint / "offsets", checkpoint / "commits"
    target = Target({"bootstrap.servers": bootstrap}, "", topic, f"odradek.{topic}.")
    driver, marked = uuid.uuid4().hex, checkpoint / "marked"
    last = newest(commits)
    in_flight = newest(offsets) > last
    known = Checkpoint(identity="c", last_batch=last, in_flight=in_flight, marked=marked.exists())
    if code := _join(_fork(lambda: claim(target, range(WRITERS), known, driver))):
        return code if code > 0 else GIVEN_UP
    marked.touch()
    batch = last + 1
    while True:
        if not in_flight:
            os.close(os.open(offsets / str(batch), os.O_CREAT | os.O_EXCL))
        in_flight = False
        part = Part(batch=batch, input=str(batch), checkpoint="c", driver=driver)
        if code := _batch(target, part):
            return code
        os.close(os.open(commits / str(batch), os.O_CREAT | os.O_EXCL))
        if (checkpoint / "enough").exists():
            return 0
        batch += 1


def _batch(target: Target, part: Part) -> int:
    waiting = set(range(WRITERS))
    for _ in range(ATTEMPTS):
        started = {number: _fork(partial(_write, target, number, part)) for number in waiting}
        codes = {number: _join(pid) for number, pid in started.items()}
        if REPLACED in codes.values():
            return REPLACED
        waiting = {number for number, code in codes.items() if code}
        if not waiting:
            return 0
    return GIVEN_UP


def _write(target: Target, number: int, part: Part) -> None:
    rows: Iterator[tuple[bytes, bytes]] = (
        (b"k", str(one).encode()) for one in ids(part.batch, number)
    )
    write_part(target, number, part, rows)


def _fork(work: Callable[[], object]) -> int:
    """Clients of Kafka live in children only: they have threads, which a fork would not copy."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except TakenOverError:
        os._exit(REPLACED)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _join(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
    except FileExistsError:
        sys.exit(CONFLICT)
