"""The broker process: puts the parts together, starts them in order, stops them in reverse.

    python -m odradek_broker.main -c server.properties --override log.dirs=/data

The only module that knows all classes. Start-up, in the order in which things may fail:
settings, sockets bound (a taken port is said at once), logs loaded or recovered, metadata
replayed, partitions hosted, clients accepted; then one JSON line on stdout says `ready`.
A failure that the user can mend is one line on stderr and exit code 1 (2 for bad settings).
"""

import argparse
import asyncio
import importlib
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import uvloop

from odradek_broker.admin.state import Readiness
from odradek_broker.controller.metadata_log import LocalMetadataLog, open_metadata_log
from odradek_broker.controller.service import ControllerService
from odradek_broker.handlers.context import BrokerContext
from odradek_broker.handlers.fetch_session import FetchSessions
from odradek_broker.handlers.registry import build_handlers
from odradek_broker.log.cleaner_manager import CleanerConfig, CleanerManager
from odradek_broker.log.dir_identity import LogDirConfigError
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.manager import LogManager
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.model.config_table import ConfigError
from odradek_broker.model.ids import BrokerId, TopicPartition
from odradek_broker.model.log_config import LogConfig
from odradek_broker.network.server import Server
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.clock import SystemClock
from odradek_broker.runtime.disk import RealDisk
from odradek_broker.runtime.loop_lag import LoopLag
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.tasks import LoopThreads

if TYPE_CHECKING:
    from odradek_broker.admin.server import AdminServer

logger = logging.getLogger(__name__)

# After this long without being ready, /readyz goes up first, so that one can see why.
SLOW_START_SECONDS = 0.5
DRAIN_SECONDS = 5.0
HOUSEKEEPING_SECONDS = 1.0
# A thread that compacts or recovers gives way to the event loop after this long; Python's own
# 5 ms showed as a median loop lag of 5 ms during compaction, this as 1.3 ms.
SWITCH_INTERVAL_SECONDS = 0.001


class StartError(Exception):
    """The broker cannot start; the text is the one line that the user sees."""


class Broker:
    """One running broker. `start` returns when clients are served; `stop` leaves clean logs."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._loop = loop
        self._started_at = time.monotonic()
        self._clock = SystemClock()
        self._readiness = Readiness()
        self._admin: AdminServer | None = None
        self._admin_socket = _bind_admin(settings)
        disk = RealDisk()
        node_id = BrokerId(settings.node_id)
        self._logs = LogManager(
            [str(path) for path in settings.log_dirs],
            disk,
            self._clock,
            _log_settings(settings, node_id),
        )
        self._cleaner = CleanerManager(
            self._logs.logs,
            lambda: CleanerConfig.of(settings),
            self._clock,
            loop.call_soon_threadsafe,
        )
        metrics = Metrics()
        rng = Random()
        partitions = PartitionService(
            node_id, settings, self._logs, self._clock, loop, LoopThreads(loop)
        )
        metadata_log = open_metadata_log(
            settings.metadata_log_dir, disk, settings, self._clock.now_ms()
        )
        self._controller = ControllerService(
            settings,
            rng,
            LocalMetadataLog(metadata_log, self._clock, asyncio.to_thread),
            node_id,
            self._logs.cluster_id,
        )
        self._context = BrokerContext(
            node_id=node_id,
            cluster_id=self._logs.cluster_id,
            settings=settings,
            clock=self._clock,
            rng=rng,
            metrics=metrics,
            logs=self._logs,
            cleaner=self._cleaner,
            partitions=partitions,
            controller=self._controller,
            fetch_sessions=FetchSessions(
                settings.int("max.incremental.fetch.session.cache.slots"), rng
            ),
        )
        self._server = Server(self._context, build_handlers(metrics), loop)
        self._lag = LoopLag(loop, self._clock, metrics)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        ports = self._bind_listeners()
        everything = await self._controller.start()
        await self._load_logs()
        self._context.partitions.apply(everything)
        self._context.partitions.set_aside_strays()
        self._controller.subscribe(self._context.partitions.apply)
        self._controller.subscribe(self._reconfigure)
        await self._controller.register_broker(
            self._settings.listeners.advertise(ports),
            self._logs.directory_ids,
            clean_shutdown=self._logs.clean_shutdown,
        )
        self._server.start_accepting()
        self._lag.start()
        self._cleaner.start()
        self._tasks.append(asyncio.create_task(self._housekeeping()))
        self._readiness.done("start")
        self._announce(ports)
        await self._start_admin()
        if self._admin is not None:
            self._admin.attach(self._context)

    async def stop(self) -> None:
        self._readiness.wait_for("stop", "the broker is stopping")
        self._server.stop_accepting()
        self._lag.stop()
        self._context.partitions.release_fetches()
        await self._server.drain(DRAIN_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._cleaner.stop)
        await asyncio.to_thread(self._logs.close)
        if self._admin is not None:
            await self._admin.stop()
        logger.info("stopped")

    def _reconfigure(self, delta: MetadataDelta) -> None:
        """What reads its settings only now and then is told that they changed."""
        if delta.broker_config_changed(BrokerId(self._context.node_id)):
            self._cleaner.reconfigure()

    def _bind_listeners(self) -> dict[str, int]:
        ports = {}
        for listener in self._settings.listeners.brokers:
            try:
                _, ports[listener.name] = self._server.bind(listener)
            except OSError as error:
                raise StartError(f"listeners: cannot bind {listener}: {error.strerror}") from error
        return ports

    async def _load_logs(self) -> None:
        image = self._controller.image

        def config_of(topic_partition: TopicPartition) -> LogConfig:
            return self._settings.log_config(image.topic_config(topic_partition.topic))

        def say(text: str) -> None:
            self._loop.call_soon_threadsafe(self._readiness.wait_for, "recovery", text)

        loading = asyncio.ensure_future(asyncio.to_thread(self._logs.load, say, config_of))
        await asyncio.wait({loading}, timeout=SLOW_START_SECONDS)
        if not loading.done():
            await self._start_admin()
        await loading
        self._readiness.done("recovery")

    async def _housekeeping(self) -> None:
        """Retention, flushes, checkpoints: decided on the loop, carried out in a thread."""
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            for job in self._logs.tick(self._clock.now_ms()):
                try:
                    await asyncio.to_thread(job)
                except LogDirError as error:
                    logger.error("%s", error)

    async def _start_admin(self) -> None:
        if self._admin_socket is None or self._admin is not None:
            return
        # In a thread, because the import takes longer than clients should wait for answers.
        module = await asyncio.to_thread(importlib.import_module, "odradek_broker.admin.server")
        admin: AdminServer = module.AdminServer(self._readiness)
        self._admin = admin
        await admin.start(self._admin_socket)

    def _announce(self, ports: dict[str, int]) -> None:
        hosts = {
            listener.name: f"{listener.host or '0.0.0.0'}:{ports[listener.name]}"
            for listener in self._settings.listeners.brokers
        }
        admin = self._admin_socket and "{}:{}".format(*self._admin_socket.getsockname()[:2])
        line = {
            "event": "ready",
            "node_id": self._context.node_id,
            "cluster_id": self._context.cluster_id,
            "listeners": hosts,
            "admin": admin,
            "startup_ms": round((time.monotonic() - self._started_at) * 1000),
        }
        print(json.dumps(line), flush=True)


def _log_settings(settings: Settings, node_id: BrokerId) -> LogSettings:
    return LogSettings(
        # Empty: what the directories say, or a new one for a new cluster.
        cluster_id=settings.optional_str("odradek.cluster.id") or "",
        node_id=node_id,
        recovery_threads_per_dir=settings.int("num.recovery.threads.per.data.dir"),
        retention_check_interval_ms=settings.int("log.retention.check.interval.ms"),
        recovery_point_interval_ms=settings.int("log.flush.offset.checkpoint.interval.ms"),
        log_start_interval_ms=settings.int("log.flush.start.offset.checkpoint.interval.ms"),
        high_watermark_interval_ms=settings.int("replica.high.watermark.checkpoint.interval.ms"),
        producer_id_expiration_ms=settings.int("producer.id.expiration.ms"),
    )


def _bind_admin(settings: Settings) -> socket.socket | None:
    address = settings.str("odradek.admin.listener")
    if not address:
        return None
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise StartError(f"odradek.admin.listener: {address!r} is not host:port")
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host.strip("[]"), int(port)))
        sock.listen()
    except OSError as error:
        sock.close()
        raise StartError(
            f"odradek.admin.listener: cannot bind {address}: {error.strerror}"
        ) from error
    return sock


def _raise_file_limit() -> None:
    """A file per active segment and a socket per client: take what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    broker = Broker(settings, loop)
    await broker.start()
    await stop.wait()
    await broker.stop()


def run_broker(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code."""
    _raise_file_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    for warning in settings.warnings:
        logger.warning(warning)
    try:
        uvloop.run(_serve(settings))
    except (StartError, LogDirConfigError, LogDirError) as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
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
    options = parser.parse_args(argv)
    logging.basicConfig(
        level=os.environ.get("ODRADEK_LOG_LEVEL", "INFO").upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        settings = Settings.load(options.config, os.environ, options.override)
    except ConfigError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 2
    return run_broker(settings)


if __name__ == "__main__":
    sys.exit(main())
