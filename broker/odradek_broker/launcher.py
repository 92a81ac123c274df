"""Starts brokers for tests by forking a process that has imported the broker already.

    python -m odradek_broker.launcher SOCKET_FD DIRECTORY

Importing the broker takes most of its start. The launcher does it once; each broker after that is
a fork. `odradek.testing` starts one launcher per test process and talks to it over a socket pair.
Each message is one JSON object, with the descriptor of the new process's stdout attached:

    {"broker": ["--override=node.id=1"], "log": "/tmp/x/server.out", "env": {}}  →  {"pid": 4711}
    {"command": ["java", "-cp", …], "log": …, "env": {}}                         →  {"pid": 4712}
    {"reap": 4711}                                                               →  {"code": -9}

Nothing outlives the test process, not even after its kill -9: the launcher watches both the socket
and the process (a pidfd, because a fork of the test process may keep the socket open). When either
ends it kills what it started, removes DIRECTORY and exits. If the launcher itself is killed, the
kernel kills its children (PR_SET_PDEATHSIG).
"""

import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from odradek_broker import main as broker_main
from odradek_protocol.messages import api
from odradek_protocol.messages.api_keys import ApiKey

PR_SET_PDEATHSIG = 1
MESSAGE_BYTES_MAX = 1 << 20
EXIT_BUG = 70  # EX_SOFTWARE
END = object()
# The APIs that a test of one broker uses first.
WARM_APIS = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.CREATE_TOPICS,
    ApiKey.LIST_OFFSETS,
    ApiKey.DELETE_TOPICS,
    ApiKey.LIST_GROUPS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALTER_PARTITION,
)

_libc = ctypes.CDLL(None)


class Launcher:
    """Serves the requests of one test process until that process ends."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: set[int] = set()

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        with suppress(ProcessLookupError):
            poll.register(os.pidfd_open(os.getppid()), select.POLLIN)
        control = self._control.fileno()
        warming = _warm_up()
        while all(number == control for number, _ in _wait(poll, warming)):
            data, fds, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES_MAX, 1)
            if not data:
                return
            try:
                answer = self._answer(json.loads(data), fds)
            except OSError as error:
                answer = {"error": str(error)}
            finally:
                for fd in fds:
                    os.close(fd)
            self._control.send(json.dumps(answer).encode())

    def _answer(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        if "reap" in request:
            return {"code": self._reap(request["reap"])}
        launcher_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(request, fds, launcher_pid)
        self._children.add(pid)
        return {"pid": pid}

    def _reap(self, pid: int) -> int | None:
        """The exit code of a child, negative for a signal; None while it runs."""
        if pid not in self._children:
            raise ChildProcessError(f"process {pid} was not started here, or is reaped already")
        done, status = os.waitpid(pid, os.WNOHANG)
        if done == 0:
            return None
        self._children.discard(pid)
        return os.waitstatus_to_exitcode(status)

    def end_all(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still theirs
        for pid in self._children:
            os.waitpid(pid, 0)
        self._children.clear()


def _wait(poll: select.poll, warming: Iterator[None]) -> list[tuple[int, int]]:
    """The descriptors that are readable; warms up codecs while none is."""
    while not (ready := poll.poll(0)):
        if next(warming, END) is END:
            return poll.poll()
    return ready


def _warm_up() -> Iterator[None]:
    """Makes the codecs that most tests need, which a broker makes when they are first used.

    Brokers that are forked later have them already: 0.1 s less for the first topic and record.
    """
    for api_key in WARM_APIS:
        api.prepare(api_key, api.supported_versions(api_key)[-1])
        yield
    gc.freeze()


def _become(request: dict[str, Any], fds: Sequence[int], launcher_pid: int) -> NoReturn:
    """The forked process: a broker, or another program. Never returns to the launcher's code."""
    code = EXIT_BUG
    try:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher_pid:  # the launcher ended before the prctl above
            os._exit(EXIT_BUG)
        _redirect(request["log"], fds)
        os.environ.update(request["env"])
        if "command" in request:
            command = request["command"]
            os.execvp(command[0], command)
        code = broker_main.main(request["broker"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _redirect(log_path: str, fds: Sequence[int]) -> None:
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 2)
    os.dup2(fds[0] if fds else log, 1)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)


def main(argv: Sequence[str]) -> int:
    control_fd, directory = int(argv[0]), argv[1]
    from odradek_broker.handlers.registry import handler_modules

    handler_modules()  # otherwise each broker would import them when it starts
    gc.collect()
    gc.freeze()  # what was imported stays in pages that all brokers share
    launcher = Launcher(socket.socket(fileno=control_fd))
    try:
        launcher.serve()
    finally:
        launcher.end_all()
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
