"""How this broker reacts when its log directories fail or fill up. Started by `broker.py`.

    one of several fails    its replicas are offline, and the next heartbeat reports it at once
    the last one fails      /readyz and /healthz fail; the broker asks to be fenced, so that other
                            brokers lead and it leaves every ISR; within about a second the process
                            exits, with an exit code and a last line that name directory and error
    space is low or out     `controller/stepping_aside.py` decides whether other brokers lead until
                            there is space again

If one of several directories ran out of space, a write stopped half-way, so it needs a restart too:
once it has had free space for a while, the broker stops in order, to be started again.

Exit codes (sysexits.h): 74 (EX_IOERR) the device failed, 75 (EX_TEMPFAIL) out of space.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from odradek_broker.admin.state import Readiness
from odradek_broker.controller.stepping_aside import Level, SteppingAside
from odradek_broker.controller_client.lifecycle import BrokerLifecycle
from odradek_broker.log.dir_failure import FailureKind, is_of_the_process, kind_of
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.file_cache import FileCache
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.manager import LogManager
from odradek_broker.log.room import RESERVE_MAX_SHARE
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.partition.service import PartitionService
from odradek_broker.raft.service import QuorumService
from odradek_broker.runtime.disk import Disk, DiskUsage
from odradek_broker.runtime.ports import Ports
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import BrokerId

logger = logging.getLogger(__name__)

EX_IOERR, EX_TEMPFAIL = 74, 75
RESERVE = "odradek.log.dir.reserve.bytes"

PROBE_SECONDS = 1.0
LEAVING_SECONDS = 0.05
# While neither the metadata nor the free space changes, only time can change the decision.
DECIDE_AGAIN_MS = 5000.0
# How long a broker that lost its last directory waits for the controller to fence it.
FENCE_MS = 1000.0
# How long a controller that lost its last directory tries to hand over the quorum.
RESIGN_MS = 500
# How long a directory that ran out of space must have had space before the broker restarts.
ROOM_SECONDS = 10.0


class StorageFailedError(Exception):
    """The process exits because of its disks; the text is its last line.

    `in_order`: it serves until other brokers lead, as in any other shutdown.
    """

    def __init__(self, text: str, kind: FailureKind, *, in_order: bool = False) -> None:
        super().__init__(text)
        self.in_order = in_order
        self.exit_code = EX_TEMPFAIL if kind is FailureKind.OUT_OF_SPACE else EX_IOERR


def storage_failed(failures: str, kind: FailureKind) -> StorageFailedError:
    """`failures` has directories and errors, such as "/data: [Errno 5] Input/output error"."""
    advice = (
        "free some space or enlarge the volume; after a restart the broker waits for room"
        if kind is FailureKind.OUT_OF_SPACE
        else "repair, replace or remount the disk, and start the broker again"
    )
    text = f"no log directory is left ({kind.value}): {failures}: {advice}"
    return StorageFailedError(text, kind)


def metadata_log_failed(path: str, error: Exception) -> Exception:
    """The error that ends a broker whose metadata log cannot be written."""
    cause = error.cause if isinstance(error, LogDirError) else error
    if not isinstance(cause, OSError) or is_of_the_process(cause):
        return error
    return storage_failed(f"metadata log in {path}: {cause}", kind_of(cause))


@dataclass(frozen=True, slots=True)
class StorageServices:
    """The services that the state of the disks affects."""

    logs: LogManager
    metadata: MetadataPublisher
    partitions: PartitionService
    lifecycle: BrokerLifecycle
    quorum: QuorumService


class StorageWatch:
    def __init__(
        self,
        settings: Settings,
        ports: Ports,
        services: StorageServices,
        readiness: Readiness,
        on_end: Callable[[Exception], None],
    ) -> None:
        self._settings = settings
        self._logs = logs = services.logs
        self._clock = ports.clock
        self._loop = ports.loop
        self._metadata = services.metadata
        self._partitions = services.partitions
        self._lifecycle = services.lifecycle
        self._quorum = services.quorum
        self._readiness = readiness
        self._on_end = on_end
        self._stepping = SteppingAside(BrokerId(settings.node_id), ports.rng)
        self._ending: asyncio.Task[None] | None = None
        self._room_since_ms: float | None = None
        self._levels: dict[str, Level] = {}
        self._aside = False
        self._seen: tuple[dict[str, Level], int] | None = None
        self._decide_at_ms = 0.0
        self._watched = list(logs.dirs)
        path = str(settings.metadata_log_dir)
        if path not in {log_dir.path for log_dir in logs.dirs}:
            self._watched.append(LogDir(path, ports.disk, FileCache(ports.disk, 1)))
        for log_dir in self._watched:
            log_dir.on_failure = self._note_failure
            if log_dir.failure is not None:  # it failed before this service was built
                self._loop.call_soon(self._failed, log_dir)

    async def run(self) -> None:
        while True:
            await self.look()
            # A broker that is fenced to let others lead still has partitions that only it can
            # lead; they have no leader until it is unfenced.
            await asyncio.sleep(LEAVING_SECONDS if self._stepping.leaving else PROBE_SECONDS)

    async def look(self) -> None:
        """Probe all directories, in a thread, and act on the results."""
        for log_dir in self._watched:
            usage = await asyncio.to_thread(log_dir.probe)
            if usage is not None:
                log_dir.room.update(usage)
        if self._ending is not None:
            return
        self._step_aside()
        await self._look_for_room()

    # -- directories that fail -----------------------------------------------------------------

    def _note_failure(self, log_dir: LogDir) -> None:
        """Called in the thread whose read or write failed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._failed, log_dir)

    def _failed(self, log_dir: LogDir) -> None:
        if self._ending is not None:
            return
        self._lifecycle.beat_now()
        if log_dir in self._logs.dirs:
            self._partitions.leave_directory(log_dir.path)
            if len(self._logs.offline_dirs) < len(self._logs.dirs):
                logger.error(
                    "replicas in these directories are offline until the broker is restarted: %s",
                    self._logs.failures(),
                )
                return
            end = storage_failed(self._logs.failures(), self._logs.failure_kind)
        else:
            assert log_dir.failure is not None
            failure = f"metadata log in {log_dir.path}: {log_dir.failure}"
            end = storage_failed(failure, kind_of(log_dir.failure))
        self._ending = self._loop.create_task(self._end(end))

    async def _end(self, error: StorageFailedError) -> None:
        """Give up all leaderships and ISRs, then exit; without a controller, exit at once."""
        self._readiness.needs_restart("storage", str(error))
        began_ms = self._clock.monotonic_ms()
        fenced = await self._lifecycle.fence(FENCE_MS)
        logger.error(
            "%s after %d ms: this broker exits",
            "fenced" if fenced else "no answer from the controller",
            self._clock.monotonic_ms() - began_ms,
        )
        await self._quorum.resign(RESIGN_MS)
        self._on_end(error)

    # -- space ---------------------------------------------------------------------------------

    def _step_aside(self) -> None:
        online = [log_dir for log_dir in self._logs.dirs if log_dir.failure is None]
        levels = {log_dir.path: _level(log_dir) for log_dir in online}
        self._log_changes(online, levels)
        self._partitions.fetch_unless_full(
            [path for path, level in levels.items() if level is Level.FULL]
        )
        aside = self._decide(levels)
        self._lifecycle.step_aside(aside)
        if aside:
            self._readiness.wait_for(
                "storage",
                f"other brokers lead while space is low: {'; '.join(map(_described, online))}",
            )
        else:
            self._readiness.done("storage")

    def _decide(self, levels: dict[str, Level]) -> bool:
        """Looks at every partition of the cluster, so only when the decision may change."""
        image, now_ms = self._metadata.image, self._clock.monotonic_ms()
        seen = (levels, image.offset)
        if seen != self._seen or now_ms >= self._decide_at_ms or self._stepping.leaving:
            self._seen, self._decide_at_ms = seen, now_ms + DECIDE_AGAIN_MS
            low = [
                one for one in self._logs.dirs if levels.get(one.path) in (Level.LOW, Level.FULL)
            ]
            self._aside = self._stepping.decide(
                list(levels.values()),
                image,
                self._min_isr,
                now_ms,
                [log_dir.directory_id for log_dir in low],
                [one.directory_id for one in low if levels[one.path] is Level.FULL],
            )
        return self._aside

    def _log_changes(self, online: list[LogDir], levels: dict[str, Level]) -> None:
        for log_dir in online:
            before = self._levels.get(log_dir.path, Level.ENOUGH)
            level = levels[log_dir.path]
            if level is before:
                continue
            if level is Level.ENOUGH:
                logger.info("log directory %s has free space again", _described(log_dir))
            else:
                logger.warning(
                    "log directory %s: %s (%s): free some space or enlarge the volume",
                    _described(log_dir),
                    "produce requests are refused"
                    if level is Level.LOW
                    else "no more records are written or replicated to it",
                    RESERVE,
                )
        self._levels = levels

    def _min_isr(self, topic: str) -> int:
        config = self._settings.log_config(self._metadata.image.topic_config(topic))
        return config.min_insync_replicas

    async def _look_for_room(self) -> None:
        """End the broker once a restart would bring back directories that were out of space."""
        offline = self._logs.offline_dirs
        reserve = self._settings.int(RESERVE)
        full = [one for one in offline if one.failure_kind is FailureKind.OUT_OF_SPACE]
        usages = [await asyncio.to_thread(_usage, one) for one in full]
        now_ms = self._clock.monotonic_ms()
        if not full or not all(usage and has_room(usage, reserve) for usage in usages):
            self._room_since_ms = None
        elif self._room_since_ms is None:
            self._room_since_ms = now_ms
        elif now_ms - self._room_since_ms >= ROOM_SECONDS * 1000 and self._ending is None:
            paths = ", ".join(log_dir.path for log_dir in full)
            text = f"{paths} was out of space and has room again: restart the broker to use it"
            self._on_end(StorageFailedError(text, FailureKind.OUT_OF_SPACE, in_order=True))


def _level(log_dir: LogDir) -> Level:
    room = log_dir.room
    return Level.FULL if room.full else Level.LOW if room.low else Level.ENOUGH


def _described(log_dir: LogDir) -> str:
    room = log_dir.room
    return f"{log_dir.path} has {room.free_bytes / 1e6:.1f} MB free of {room.total_bytes / 1e6:.0f}"


def _usage(log_dir: LogDir) -> DiskUsage | None:
    try:
        return log_dir.disk.usage(log_dir.path)
    except OSError:
        return None


def needed_bytes(usage: DiskUsage, reserve_bytes: int) -> int:
    """Free space that a broker needs to start: half of the reserve, see `log/room.py`."""
    return min(reserve_bytes, int(usage.total_bytes * RESERVE_MAX_SHARE)) // 2


def has_room(usage: DiskUsage, reserve_bytes: int) -> bool:
    return usage.usable_bytes >= max(needed_bytes(usage, reserve_bytes), 1)


def waits_for_room(settings: Settings, disk: Disk) -> str | None:
    """Why a start would fail now: no space for the metadata log, or none for any log.

    Recovery writes indexes, and a start writes checkpoints; without space they would fail half-way.
    A directory whose free space cannot be read is left to the start itself, which reports it.
    """
    reserve = settings.int(RESERVE)

    def lacks(path: str) -> str | None:
        try:
            usage = disk.usage(path)
        except OSError:
            return None
        if has_room(usage, reserve):
            return None
        needed = needed_bytes(usage, reserve)
        free = usage.usable_bytes / 1e6
        return f"{path} has {free:.1f} MB free, but a start needs {needed / 1e6:.1f} MB"

    lacking = [lacks(str(path)) for path in settings.log_dirs]
    metadata = lacks(str(settings.metadata_log_dir))
    if all(lacking) or metadata is not None:
        reasons = dict.fromkeys(reason for reason in (*lacking, metadata) if reason is not None)
        return f"{'; '.join(reasons)}: waiting for room"
    return None
