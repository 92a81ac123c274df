"""A checkpoint and a table belong to one pipeline: a marker file in each names it.

Why: Spark uses any checkpoint it is given. One of another pipeline makes it skip records or fail
with a stack trace; a new checkpoint over an old table makes it drop batches silently, because the
table's log already contains batches of those numbers.

    <checkpoint>/odradek.json    {"pipeline": "default/page-views", "id": "8f…", "sources": […],
                                  "sinks": {"alerts": "hot"}}    of each of several: its view
    <table>/_odradek.json        {"pipeline": "default/page-views", "checkpoint": "8f…"}
                                 and {"sink": "alerts"}, if it is not main
"""

from __future__ import annotations

import json
import uuid
from typing import Any, Protocol

from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.outputs import MAIN, Output, outputs

CHECKPOINT_MARK, TABLE_MARK = "odradek.json", "_odradek.json"


class MarkFiles(Protocol):
    def read(self, path: str) -> str | None: ...
    def write(self, path: str, text: str) -> None: ...
    def names(self, path: str) -> list[str]: ...


def guard(files: MarkFiles, job: Job, new_id: str | None = None) -> str:
    """Marks a new checkpoint and table, refuses foreign ones; `new_id` is for tests.

    Returns the identity of the checkpoint.
    """
    checkpoint = job.checkpoint_location
    mark = files.read(f"{checkpoint}/{CHECKPOINT_MARK}")
    if mark is None:
        if names := files.names(checkpoint):
            message = f"{checkpoint} contains {names[0]} of another program: use an empty directory"
            raise SpecError("spec.checkpoint", message)
        identity = new_id or uuid.uuid4().hex
    else:
        identity = _check(checkpoint, json.loads(mark), job)
    for output in outputs(job.spec):
        _guard_table(files, job, output, identity)
    before: dict[str, Any]
    before = json.loads(mark) if mark else {"pipeline": job.key, "id": identity,
                                           "sources": sources(job)}  # fmt: skip
    known = {**before, "sinks": before.get("sinks", {}) | _views(job)}
    if mark is None or known["sinks"] != before.get("sinks", {}):
        files.write(f"{checkpoint}/{CHECKPOINT_MARK}", json.dumps(known))
    return identity


def _views(job: Job) -> dict[str, str]:
    """Sink → view; a sink that was removed stays in the mark, because its checkpoint does."""
    return {sink.name: sink.from_ or "" for sink in job.spec.sinks}


def check_guard(files: MarkFiles, job: Job) -> None:
    """The reason why `guard` would refuse; marks nothing."""
    guard(_Reading(files), job)


class _Reading:
    """Files that are read and not written."""

    def __init__(self, files: MarkFiles) -> None:
        self.read, self.names = files.read, files.names

    def write(self, path: str, text: str) -> None:
        pass


def sources(job: Job) -> list[str]:
    """The sources in order, which is how Spark's checkpoint identifies them."""
    if job.spec.sdp is not None:  # flows have checkpoints of their own, by name
        return ["a project of declarative pipelines"]
    found = []
    for source in job.spec.sources:
        if source.files is not None:
            found.append(f"files {job.path(source.files.path)}")
        elif source.table is not None:
            found.append(f"table {job.path(source.table.path)}")
        elif source.rate is not None:
            found.append("rate")
        else:
            found.append(f"topics {source.topic_pattern or ','.join(sorted(source.topics))}")
    return found


def _check(checkpoint: str, mark: dict[str, Any], job: Job) -> str:
    if mark["pipeline"] != job.key:
        message = f"{checkpoint} is the checkpoint of {mark['pipeline']}, not of {job.key}"
        raise SpecError("spec.checkpoint", message)
    before, now = mark["sources"], sources(job)
    if before != now:
        message = (f"the checkpoint at {checkpoint} was created for {'; '.join(before)}, not for "
                f"{'; '.join(now)}: set a new spec.checkpoint to start over")  # fmt: skip
        raise SpecError("spec.sources", message)
    for output in outputs(job.spec):
        view = mark.get("sinks", {}).get(output.query)
        if view and output.view and view != output.view:
            message = (
                f"sink {output.query} has a checkpoint of view {view}: give the sink a new name, "
                "with which it starts from the beginning"
            )
            raise SpecError(f"spec.{output.at}.from", message)
    return str(mark["id"])


def _guard_table(files: MarkFiles, job: Job, output: Output, identity: str) -> None:
    if output.sink.table is None:
        return
    path, at = job.path(output.sink.table.path), f"spec.{output.at}.table.path"
    text = files.read(f"{path}/{TABLE_MARK}")
    if text is None:
        if names := files.names(path):
            message = f"{path} contains {names[0]} of another program: use an empty directory"
            raise SpecError(at, message)
        known = {"pipeline": job.key, "checkpoint": identity}
        if output.query != MAIN:
            known["sink"] = output.query
        files.write(f"{path}/{TABLE_MARK}", json.dumps(known))
        return
    mark = json.loads(text)
    if mark["pipeline"] != job.key:
        message = f"{path} is the table of {mark['pipeline']}"
        raise SpecError(at, message)
    writer = mark.get("sink", MAIN)
    if mark["checkpoint"] != identity or writer != output.query:
        other = "another checkpoint" if writer == output.query else f"that of sink {writer}"
        message = (
            f"{path} was written with {other}; with this one Spark would skip batches "
            "whose numbers are already in the table: use a new path, or the old checkpoint"
        )
        raise SpecError(at, message)
