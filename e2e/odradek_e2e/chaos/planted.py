"""The planted bugs that a campaign must find (world/planted_broker.py has what they do)."""

from __future__ import annotations

from dataclasses import dataclass

KILLS = ("kill", "kill-two", "pause")
CUTS = ("isolate", "cut-outgoing", "cut-incoming", "pause", "kill")
LOG, READ = ("log",), ("log", "readers")


@dataclass(frozen=True)
class PlantedBug:
    """Its name, and the faults and workloads that bring it out: a whole campaign takes longer."""

    name: str
    kinds: tuple[str, ...]
    workloads: tuple[str, ...]


PLANTED: tuple[PlantedBug, ...] = (
    PlantedBug("acks-before-commit", CUTS, LOG),
    PlantedBug("unclean-election", ("kill-two", "kill", "isolate"), LOG),
    PlantedBug("no-sequences", ("lossy-links", "pause", "cut-clients"), LOG),
    PlantedBug("no-truncation", CUTS, LOG),
    PlantedBug("reads-past-the-high-watermark", CUTS, READ),
    PlantedBug("reads-open-transactions", KILLS, ("lists",)),
    PlantedBug("aborted-are-forgotten", KILLS, ("bank",)),
    PlantedBug("markers-lie", KILLS, ("bank",)),
    PlantedBug("aborts-commit-offsets", CUTS, ("copy-in", "copying")),
    PlantedBug("offsets-are-forgotten", KILLS, ("copy-in", "members")),
    PlantedBug("cleaner-removes-the-newest", KILLS, ("keys",)),
    PlantedBug("deleted-records-return", KILLS, ("trim", "admin", "watch")),
    PlantedBug("offsets-of-a-new-leader", CUTS, ("log", "watch")),
    PlantedBug("fetch-skips", KILLS, ("lists",)),
)
