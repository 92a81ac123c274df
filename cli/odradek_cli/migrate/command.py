"""The command: the order of the steps, and what is printed."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli.errors import CliError

if TYPE_CHECKING:
    from odradek_cli.migrate.clusters import MigrationSide, SourceTopic
    from odradek_cli.migrate.copy import Copier
    from odradek_cli.migrate.state import PartitionState, Place
    from odradek_cli.migrate.verify import Checked

FOLLOW_PAUSE_S = 1.0  # between passes of --follow that found nothing new
PRINT_EVERY_S = 2.0
SETTLE_DEADLINE_S = 5.0  # to wait for transactions of the source that are just ending


def migrate(
    source: Annotated[
        str, typer.Option("--from", metavar="HOST:PORT[,…]", help="The cluster to copy from.")
    ],
    destination: Annotated[
        str, typer.Option("--to", metavar="HOST:PORT[,…]", help="The cluster to copy to.")
    ],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Default: all topics. Repeatable.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on copying new records until Ctrl-C.")
    ] = False,
    cut_over: Annotated[
        bool,
        typer.Option(
            "--cut-over",
            help="The last run, after all producers have stopped: also moves groups and settings.",
        ),
    ] = False,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            help="Replicas of new topics. Default: as in the source, if there are enough brokers."
        ),
    ] = None,
    compression: Annotated[
        str, typer.Option(help="Compression of the copies: none, gzip, snappy, lz4 or zstd.")
    ] = "lz4",
) -> None:
    """Copy topics, records and group offsets to another cluster, and verify them."""
    from odradek_cli.migrate.clusters import MigrationSide, make_ready, release
    from odradek_cli.migrate.copy import Copier

    if follow and cut_over:
        raise CliError(
            "--follow and --cut-over exclude each other: stop --follow, then run --cut-over"
        )
    with closing(MigrationSide(source)) as old, closing(MigrationSide(destination)) as new:
        if old.cluster_id == new.cluster_id:
            raise CliError(f"--from and --to are the same cluster ({old.cluster_id})")
        topics = old.topics(topic or [])
        make_ready(new, topics, replication_factor)
        copier = Copier(old, new, compression)
        try:
            states = copier.states([place for t in topics for place in t.places])
            over = {place[0] for place, state in states.items() if state.done}
            if over:
                release(new, [t for t in topics if t.name in over])
                print(f"already cut over: {', '.join(sorted(over))}")
            left = [t for t in topics if t.name not in over]
            states = {place: state for place, state in states.items() if place[0] not in over}
            if left:
                _Run(old, new, copier, left, states).run(follow, cut_over)
        finally:
            copier.close()


@dataclass
class _Run:
    source: MigrationSide
    destination: MigrationSide
    copier: Copier
    topics: list[SourceTopic]
    states: dict[Place, PartitionState]
    _printed_at: float = 0.0

    def run(self, follow: bool, cut_over: bool) -> None:
        copied = sum(state.count for state in self.states.values())
        print(
            f"{len(self.topics)} topics, {len(self.states)} partitions; "
            f"{copied} records copied before",
            flush=True,
        )
        if cut_over:  # markers of the last commits may still be on their way
            self.source.settled(self.states, SETTLE_DEADLINE_S)
        self._pass()
        while follow:
            if not self._pass():
                time.sleep(FOLLOW_PAUSE_S)
        if cut_over:
            self._cut_over()
        else:
            self._verify({})

    def _pass(self) -> bool:
        """Copies up to the current end; returns whether there was anything to copy."""
        self._skip_what_is_gone()
        ends = self.source.ends(self.states)
        total = sum(max(end - self.states[p].position, 0) for p, end in ends.items())
        if not total:
            return False
        targets = dict(ends)

        def progress(states: dict[Place, PartitionState]) -> None:
            if time.monotonic() - self._printed_at < PRINT_EVERY_S:
                return
            self._printed_at = time.monotonic()
            left = sum(max(end - states[p].position, 0) for p, end in targets.items())
            copied = sum(state.count for state in states.values())
            print(
                f"{100 * (total - left) // total:3d} % of this pass, {copied} records copied",
                flush=True,
            )

        self.copier.copy(self.states, ends, progress)
        return True

    def _skip_what_is_gone(self) -> None:
        """Skips records that retention of the source deleted before they were copied."""
        for place, start in self.source.starts(self.states).items():
            state = self.states[place]
            if state.position < start:
                print(
                    f"{place[0]}:{place[1]}: offsets {state.position} to {start - 1} were "
                    "deleted in the source before they were copied",
                    flush=True,
                )
                self.states[place] = state.at(start)

    def _verify(self, wanted: dict[Place, set[int]]) -> dict[Place, Checked]:
        from odradek_cli.migrate.verify import check, differences

        print("reading the destination …", flush=True)
        checked = check(self.source, self.destination, self.states, wanted)
        wrong = differences(self.states, checked)
        if wrong:
            raise CliError("source and destination differ: " + "; ".join(wrong))
        for (topic, partition), found in sorted(checked.items()):
            print(f"{topic}:{partition}  {found.count} records  {found.digest.hex()}  same")
        total = sum(found.count for found in checked.values())
        print(f"verified: {total} records in {len(checked)} partitions", flush=True)
        return checked

    def _cut_over(self) -> None:
        """Groups, then the mark, then settings that may delete: each step can be repeated."""
        from odradek_cli.migrate.clusters import release
        from odradek_cli.migrate.groups import committed_offsets, set_offsets, translated
        from odradek_cli.migrate.verify import counts_before

        self._must_be_quiet()
        committed = committed_offsets(self.source, set(self.states))
        places: dict[Place, list[int]] = {}
        for c in committed:
            places.setdefault(c.place, []).append(c.offset)
        counts = counts_before(self.source, self.states, places)
        checked = self._verify({place: set(found.values()) for place, found in counts.items()})
        moved = translated(committed, counts, checked)
        set_offsets(self.destination, moved)
        self._must_be_quiet()
        self.states = {place: replace(state, done=True) for place, state in self.states.items()}
        self.copier.mark_done(self.states)
        release(self.destination, self.topics)
        groups = {c.group for c in moved}
        print(f"cut over: {len(self.topics)} topics, {len(moved)} offsets of {len(groups)} groups")

    def _must_be_quiet(self) -> None:
        """Nothing was written since the copy ended, and no transaction is open in the source."""
        for (topic, partition), end in self.source.high_watermarks(self.states).items():
            if end > self.states[topic, partition].position:
                raise CliError(
                    f"{topic}:{partition} is still being written, or has an open transaction: "
                    "stop the producers, then run --cut-over again"
                )
