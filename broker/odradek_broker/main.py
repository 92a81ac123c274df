"""The broker as a process: flags, logging, signals, exit code.

    python -m odradek_broker.main -c server.properties --override log.dirs=/data

A failure that the user can fix is one line on stderr, the last one, and an exit code:

    1   it cannot start, or cannot continue
    2   invalid settings
    74  the last log directory failed: the device (EX_IOERR)
    75  the last log directory is out of space; after a restart it waits for room (EX_TEMPFAIL)
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from asyncio import FIRST_COMPLETED
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek_broker.admin_front import AdminFront, StartError
from odradek_broker.broker import Broker
from odradek_broker.log.dir_failure import FailureKind
from odradek_broker.log.dir_identity import LogDirConfigError
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.log_dirs import NoLogDirError
from odradek_broker.model.config_table import ConfigError
from odradek_broker.runtime import descriptors
from odradek_broker.runtime.disk import RealDisk
from odradek_broker.runtime.event_loop import PollerLoop
from odradek_broker.runtime.settings import Settings
from odradek_broker.storage import EX_TEMPFAIL, StorageFailedError, waits_for_room

if TYPE_CHECKING:
    from odradek_broker.testing.mode import TestingMode

logger = logging.getLogger(__name__)

# A thread that compacts or recovers yields to the event loop after this long. Python's default of
# 5 ms led to a median loop lag of 5 ms during compaction, this value to 1.3 ms.
SWITCH_INTERVAL_SECONDS = 0.001
# A disk that failed may block a thread for ever: the process exits after this long in any case.
END_SECONDS = 3.0
ROOM_POLL_SECONDS = 1.0


async def _serve(settings: Settings, testing: "TestingMode | None") -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PollerLoop)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopping = loop.create_task(stop.wait())
    front = AdminFront(settings)
    await _wait_for_room(settings, front, stopping)
    if stopping.done():
        await front.stop()
        return
    Broker.check_listeners(settings)
    broker = Broker(settings, loop, front, testing)
    starting = loop.create_task(broker.start())
    ends: set[asyncio.Future[Any]] = {stopping, broker.failure}
    await asyncio.wait({starting, *ends}, return_when=FIRST_COMPLETED)
    if starting.done() and starting.exception() is None:
        await asyncio.wait(ends, return_when=FIRST_COMPLETED)
    if broker.failure.done():
        _end_soon(broker.failure.exception())
    starting.cancel()
    await asyncio.wait({starting})
    await broker.stop()
    for ended in (broker.failure, starting):
        if ended.done() and not ended.cancelled():
            ended.result()


async def _wait_for_room(
    settings: Settings, front: AdminFront, stopping: asyncio.Future[Any]
) -> None:
    """Waits to start until the disks have enough free space."""
    disk = RealDisk()
    logged = False
    while not stopping.done():
        reason = await asyncio.to_thread(waits_for_room, settings, disk)
        if reason is None:
            break
        if not logged:
            logger.warning("%s", reason)
            logged = True
        front.readiness.wait_for("storage", reason)
        await front.start()
        await asyncio.wait({stopping}, timeout=ROOM_POLL_SECONDS)
    front.readiness.done("storage")


def _end_soon(error: BaseException | None) -> None:
    if isinstance(error, StorageFailedError) and not error.in_order:

        def end() -> None:
            print(f"odradek: {error}", file=sys.stderr, flush=True)
            os._exit(error.exit_code)

        timer = threading.Timer(END_SECONDS, end)
        timer.daemon = True
        timer.start()


def run_broker(settings: Settings, testing: "TestingMode | None" = None) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code."""
    descriptors.raise_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    for warning in settings.warnings:
        logger.warning(warning)
    try:
        with asyncio.Runner(loop_factory=PollerLoop) as runner:
            runner.run(_serve(settings, testing))
    except StorageFailedError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return error.exit_code
    except ConfigError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 2
    except (StartError, LogDirConfigError, LogDirError) as error:
        print(f"odradek: {error}", file=sys.stderr)
        out_of_space = isinstance(error, NoLogDirError) and error.kind is FailureKind.OUT_OF_SPACE
        return EX_TEMPFAIL if out_of_space else 1
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="odradek-broker", description="Runs one broker.")
    parser.add_argument("-c", "--config", type=Path, help="a server.properties file")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting; wins over the file and the environment; may be repeated",
    )
    parser.add_argument(
        "--add-scram-file",
        metavar="FILE",
        help="users that a new cluster begins with, one line each: "
        "SCRAM-SHA-512=[name=admin,password=...]; ignored at later starts",
    )
    parser.add_argument(
        "--testing-control",
        metavar="PATH",
        help="for tests only: a Unix socket whose user can fail requests, advance the clock and "
        "fill the disk (odradek.testing); there is no setting for it",
    )
    options = parser.parse_args(argv)
    logging.basicConfig(
        level=os.environ.get("ODRADEK_LOG_LEVEL", "INFO").upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    overrides = options.override
    if options.add_scram_file is not None:
        overrides = [*overrides, f"odradek.add.scram.file={options.add_scram_file}"]
    try:
        settings = Settings.load(options.config, os.environ, overrides)
    except ConfigError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 2
    return run_broker(settings, _testing_mode(options.testing_control))


def _testing_mode(control_path: str | None) -> "TestingMode | None":
    if control_path is None:
        return None
    from odradek_broker.testing.mode import TestingMode

    logger.warning("testing mode: %s controls this broker", control_path)
    return TestingMode(control_path)


if __name__ == "__main__":
    sys.exit(main())
