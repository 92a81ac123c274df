"""Joins neighbours: a thousand acknowledgements in order become one line of the history."""

from __future__ import annotations

from typing import Any

from odradek_e2e.chaos.history import Recorder, now

RUN_MAX = 5_000


class Runs:
    """Numbers of writers at offsets of partitions, noted as (first number, first offset, count)."""

    def __init__(self, recorder: Recorder, event: str, **fields: Any) -> None:
        self._recorder = recorder
        self._event = event
        self._fields = fields
        self._open: dict[tuple[int, int], list[int]] = {}  # (writer, partition) → s, o, n

    def add(self, writer: int, partition: int, number: int, offset: int) -> None:
        run = self._open.get((writer, partition))
        if run is not None:
            first, at, count = run
            follows = offset == at + count if at >= 0 else offset < 0
            if number == first + count and follows and count < RUN_MAX:
                run[2] += 1
                return
            self._note(writer, partition, run)
        self._open[writer, partition] = [number, offset, 1]

    def flush(self) -> None:
        for (writer, partition), run in self._open.items():
            self._note(writer, partition, run)
        self._open.clear()

    def _note(self, writer: int, partition: int, run: list[int]) -> None:
        first, offset, count = run
        self._recorder.note(
            self._event, w=writer, p=partition, s=first, n=count, o=offset, t=now(), **self._fields
        )
