"""One broker of a Kafka under test, and what a test may do to it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from odradek.testing.control import command
from odradek.testing.engines import ApacheServer, OwnServer
from odradek.testing.errors import UnsupportedError
from odradek_cli.processes import ChildProcess
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.api_keys import ApiKey


class Broker:
    """`kafka.brokers[0]`, `kafka.broker(1)`, `kafka.leader_of("orders", 0)`."""

    def __init__(
        self, broker_id: int, server: OwnServer | ApacheServer, on_fault: Callable[[], None]
    ) -> None:
        self.id = broker_id
        self.rack = server.settings.get("broker.rack")
        self.paused = False
        self._server = server
        self._on_fault = on_fault

    def __repr__(self) -> str:
        state = "paused" if self.paused else "running" if self.running else "stopped"
        return f"<broker {self.id} at {self.address}, {state}>"

    @property
    def address(self) -> str:
        """Its host and port for clients; stays the same over restarts."""
        first, _, _ = self._server.settings["listeners"].partition(",")
        return first.rpartition("//")[2]

    @property
    def running(self) -> bool:
        """Whether its process exists and is not paused."""
        return self._server.process is not None and not self.paused

    @property
    def pid(self) -> int:
        return self._server.pid

    def log(self) -> str:
        """The log of the process, over all its restarts."""
        return self._server.log()

    def rss_bytes(self) -> int:
        return self._server.rss_bytes()

    # -- its process -------------------------------------------------------------------------------

    def kill(self) -> None:
        """kill -9, as when a machine disappears; `start` brings it back with its data."""
        self._on_fault()
        self._server.kill()
        self.paused = False

    def stop(self) -> None:
        """SIGTERM: it hands over its leaderships and shuts down in order."""
        self._on_fault()
        self.resume()
        code = self._server.stop()
        if code != 0:
            raise AssertionError(f"broker {self.id}: exit code {code}\n{self.log()[-4000:]}")

    def start(self) -> None:
        """After `kill` or `stop`; returns when it is ready."""
        self._server.start()

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: it keeps its memory and connections, but answers nothing until `resume`."""
        self._on_fault()
        self._process().send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Has no effect on a broker that is not paused."""
        if self.paused:
            self._process().send_signal(signal.SIGCONT)
            self.paused = False

    # -- its requests and its disk: only with our engine -------------------------------------------

    def cut(self, *, clients: bool = False) -> None:
        """No request of another broker reaches it any more, and with `clients` none of a client.

        The other direction is `kafka.cut(broker)`, which does both. Requests are held back, not
        refused: connections stay open, and what was held back arrives after `heal`.
        """
        self.control(do="fault", apis=None, hold=True, brokers=True, clients=clients)

    def slow_down(self, delay_ms: int = 100, *, brokers: bool = False) -> None:
        """Every request of a client waits so long before it is handled; also those of brokers, on
        request."""
        self.control(do="fault", apis=None, delay_ms=delay_ms, clients=True, brokers=brokers)

    def fill_disk(self, free_bytes: int = 0) -> None:
        """It behaves as with a disk that has only so much room, until `free_disk` or a restart.

        No bytes are written: its view of the free space is replaced. Everything that follows is
        what a full disk causes: below odradek.log.dir.reserve.bytes producers get
        KAFKA_STORAGE_ERROR, below half of it followers stop, and other brokers take over.
        """
        self.control(do="free_bytes", bytes=free_bytes)

    def free_disk(self) -> None:
        self.control(do="free_bytes", bytes=None)

    def fail_next(self, api: str, error: str, times: int = 1) -> None:
        """Its next requests of an API are answered with an error code and not carried out:
        `fail_next("PRODUCE", "NOT_LEADER_OR_FOLLOWER", 2)`; names as Kafka writes them."""
        self.control(do="fault", apis=[_api(api)], error=_error(error), times=times)

    def delay_next(self, api: str, delay_ms: int, times: int = 1) -> None:
        """Its next requests of an API wait so long before they are carried out."""
        self.control(do="fault", apis=[_api(api)], delay_ms=delay_ms, times=times)

    def heal(self) -> None:
        """Ends cut, slow_down, fail_next, delay_next and fill_disk; resumes it if it is paused."""
        self.resume()
        if isinstance(self._server, OwnServer) and self.is_alive():
            self.control(do="heal")
            self.free_disk()

    def control(self, **request: Any) -> None:
        """A command of the control socket; UnsupportedError with another engine than ours."""
        if not isinstance(self._server, OwnServer):
            raise UnsupportedError(
                "Apache Kafka cannot do this: only the engine 'odradek' has a control socket; "
                "kill, stop, start, pause, move_leader and expire_member work with both"
            )
        self._on_fault()
        self._process()
        command(self._server.control_path, **request)

    def _process(self) -> ChildProcess:
        process = self._server.process
        if process is None:
            raise AssertionError(f"broker {self.id} is not running: start it first")
        return process

    # -- used by Kafka -----------------------------------------------------------------------------

    def is_alive(self) -> bool:
        process = self._server.process
        return process is not None and not self.paused and process.poll() is None

    def end(self) -> str:
        """Kills what is left; the log of a broker that had died by itself, else an empty text."""
        process = self._server.process
        if process is None:
            return ""
        code = process.poll()
        if code is None:
            self._server.kill()
            return ""
        self._server.process = None
        return f"broker {self.id} died (exit code {code})\n{self.log()[-4000:]}\n"


def _api(name: str) -> str:
    """ "Produce" and "PRODUCE" are the same."""
    wanted = name.replace("_", "").upper()
    found = next((key.name for key in ApiKey if key.name.replace("_", "") == wanted), None)
    if found is None:
        raise ValueError(f"there is no API {name!r}; APIs are for example PRODUCE, FETCH, METADATA")
    return found


def _error(name: str) -> str:
    if name.lower() not in ErrorCode.__members__:
        raise ValueError(
            f"there is no error {name!r}; errors are for example NOT_LEADER_OR_FOLLOWER"
        )
    return name
