"""Everything of a campaign in namespaces of its own, so that its end leaves nothing behind.

    inside(["python", "-m", "odradek_e2e.chaos", …])     # runs it there; its exit code

The command becomes process 1 of a new PID namespace, with its own mounts and its own network. When
it ends, by whatever signal, the kernel kills every process that it started, and with the last of
them the mounts, loop devices, interfaces and routes disappear. No clean-up code has to run.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import FrameType

# The kernel kills `unshare` when this process ends, and its child when `unshare` ends.
UNSHARE = (
    "setpriv", "--pdeathsig", "KILL", "--",
    "unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child=SIGKILL",
    "--mount-proc",
)  # fmt: skip
NEEDED = ("setpriv", "unshare", "nsenter", "ip")
INSIDE = "ODRADEK_CHAOS_SANDBOX"  # set for the command


def obstacle() -> str:
    """Why this machine cannot do it; empty if it can."""
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: util-linux, iproute2)"
    if os.geteuid() != 0:
        return "namespaces and mounts need root"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    probe = subprocess.run([*UNSHARE, "ip", "tuntap", "add", "dev", "probe", "mode", "tun"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    return probe.stderr.strip().splitlines()[-1] if probe.returncode else ""


def inside(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Runs the command in new namespaces; SIGTERM and SIGINT end them and this program."""
    child = subprocess.Popen([*UNSHARE, *command], env={**os.environ, **(env or {}), INSIDE: "1"})

    ended_by: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        ended_by.append(number)
        child.kill()  # unshare; its child, process 1 of the namespace, gets SIGKILL from it

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if ended_by:
        raise SystemExit(128 + ended_by[0])
    return code


def is_inside() -> bool:
    return os.environ.get(INSIDE) == "1"
