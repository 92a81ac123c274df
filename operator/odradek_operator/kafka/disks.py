"""Log directories that are low on space or have failed: `status.disks`, condition DiskPressure.

Does no I/O: it is computed from DescribeLogDirs, from exit codes of processes, and from the
previous status. That has the time at which a directory entered its state, and the last facts about
a broker that does not answer.

    Low       less free space than the reserve, until there is 1.25 times as much: our broker
              refuses producers and hands over its leaders where it can
    Offline   the broker stopped using it; its replicas are out of sync
    Ended     the broker ended because its last directory failed or was full
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek_api.kafka_cluster.status import DiskStatus
from odradek_operator.kafka.actions import NAMES_MAX, Reason
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kafka.observed import LogDir, Observed, Phase

RESERVE = "odradek.log.dir.reserve.bytes"  # a setting of the embedded broker; 0: off
RESERVE_BYTES = 64 << 20  # its default; for engine apache only the threshold of the warning
RESERVE_SHARE = 20  # at most 1/20 of the file system
LOW, OFFLINE, ENDED = "Low", "Offline", "Ended"
CODES = {ENDED: "BrokerEnded", OFFLINE: "DirectoryOffline", LOW: "LowSpace"}  # the worst first
MORE_ROOM = "expand its file system (on Kubernetes: spec.storage.size) or delete data"
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def disk_statuses(
    desired: DesiredCluster, observed: Observed, before: Sequence[DiskStatus], now: str
) -> list[DiskStatus]:
    """Only directories with a problem. `now` is in the format of a status."""
    made: list[DiskStatus] = []
    answers = observed.kafka.log_dirs if observed.kafka else {}
    for broker in sorted({*desired.brokers, *observed.brokers}):
        old = [one for one in before if one.broker == broker]
        found, dirs = observed.brokers.get(broker), answers.get(broker)
        if found and found.phase in (Phase.CRASHED, Phase.STOPPED):
            dirs = None  # outdated: from before its end
        ended = found.ended if found and found.phase is not Phase.READY else None
        # A start after that may fail with another code.
        for_storage = ended and (ended.for_storage or any(one.state == ENDED for one in old))
        if dirs is not None:
            own = [w for d in dirs for w in _of_directory(desired, broker, d, old, now)]
        else:
            own = [] if for_storage else old  # nothing is concluded from silence
        if ended is not None and for_storage and not own:
            own = [_status(broker, "", ENDED, old, now, f"broker {broker}: {ended.words}")]
        made += own
    return made


def disk_pressure(disks: Sequence[DiskStatus], observed: Observed) -> tuple[str, str, Reason]:
    kind = "DiskPressure"
    if disks:
        worst = next(state for state in CODES if any(d.state == state for d in disks))
        shown = [d.message for d in disks[:NAMES_MAX]]
        if more := len(disks) - len(shown):
            shown.append(f"{more} more in status.disks")
        return kind, "True", Reason(CODES[worst], "; ".join(shown))
    if observed.kafka is None or not observed.kafka.log_dirs:
        return kind, "Unknown", Reason("NoAnswer", "no broker answers")
    return kind, "False", Reason("EnoughSpace", "all log directories have free space")


def transitions(
    before: Iterable[DiskStatus], after: Iterable[DiskStatus]
) -> list[tuple[Reason, bool]]:
    """The changes between two statuses, as events, and whether each is a warning."""
    old = {_key(one): one for one in before}
    new = {_key(one): one for one in after}
    began = [(Reason(CODES[o.state], o.message), True) for k, o in new.items() if k not in old]
    places = {(one.broker, one.directory) for one in new.values()}
    over = [
        (Reason("DiskPressureOver", _over(one)), False)
        for key, one in old.items()
        if key not in new and (one.broker, one.directory) not in places
    ]
    return [*began, *over]


def reserve_bytes(desired: DesiredCluster, broker: int, total_bytes: int) -> int:
    """How much of a file system the broker keeps free, by its own formula."""
    node = desired.brokers.get(broker)
    setting = node.settings.get(RESERVE, "") if node else ""
    try:
        wanted = int(setting) if setting else RESERVE_BYTES
    except ValueError:  # the broker refuses to start with such a value
        wanted = RESERVE_BYTES
    return min(max(0, wanted), total_bytes // RESERVE_SHARE)


def size(count: int) -> str:
    """ "12 MiB", "1.2 GiB": rounded, or every write would change the status."""
    value, unit = float(max(0, count)), 0
    while value >= 1000 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return (
        f"{value:.1f} {UNITS[unit]}" if 0 < value < 9.95 and unit else f"{value:.0f} {UNITS[unit]}"
    )


# -- one directory ---------------------------------------------------------------------------------


def _of_directory(
    desired: DesiredCluster, broker: int, found: LogDir, old: Sequence[DiskStatus], now: str
) -> list[DiskStatus]:
    where = f"broker {broker}: {found.path}"
    if found.offline:
        since = _since(broker, found.path, OFFLINE, old, now)
        message = f"{where} has been offline since {since}, and its replicas are out of sync: see "
        message += f"the broker's log for the cause. {_remedy(desired)}"
        return [_status(broker, found.path, OFFLINE, old, now, message)]
    reserve = reserve_bytes(desired, broker, found.total_bytes)
    was_low = any(_key(one) == (broker, found.path, LOW) for one in old)
    enough = reserve * 5 // 4 if was_low else reserve  # the broker uses the same hysteresis
    if found.usable_bytes < 0 or found.usable_bytes >= enough:
        return []
    since = _since(broker, found.path, LOW, old, now)
    message = f"{where} has {size(found.usable_bytes)} free of {size(found.total_bytes)} "
    message += f"(reserve {size(reserve)}) since {since}: {_consequence(desired)}; {MORE_ROOM}"
    return [_status(broker, found.path, LOW, old, now, message)]


def _consequence(desired: DesiredCluster) -> str:
    if desired.spec.engine == "apache":
        return "Apache Kafka stops using it when it is full"
    return "the broker refuses producers until there is space; other brokers lead where possible"


def _remedy(desired: DesiredCluster) -> str:
    if desired.spec.engine == "apache":
        return f"If it is full, {MORE_ROOM}; then restart the broker to use it again"
    return (
        f"If it is full, {MORE_ROOM}: the broker then restarts by itself within seconds and uses "
        "it again. After a device error, replace the device and restart the broker"
    )


def _over(old: DiskStatus) -> str:
    if old.state == ENDED:
        return f"broker {old.broker} is running again"
    now = "is used again" if old.state == OFFLINE else "has enough free space again"
    return f"broker {old.broker}: {old.directory} {now}"


def _key(one: DiskStatus) -> tuple[int, str, str]:
    return one.broker, one.directory, one.state


def _since(broker: int, directory: str, state: str, old: Sequence[DiskStatus], now: str) -> str:
    same = (o.since for o in old if _key(o) == (broker, directory, state))
    return next(same, now)


def _status(
    broker: int, directory: str, state: str, old: Sequence[DiskStatus], now: str, message: str
) -> DiskStatus:
    return DiskStatus(
        broker=broker,
        directory=directory,
        state=state,
        since=_since(broker, directory, state, old, now),
        message=message,
    )
