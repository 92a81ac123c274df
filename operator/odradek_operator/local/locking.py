"""The lock of a state directory: only one runtime at a time may use it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import msgspec

from odradek_operator.local.ledger import LedgerError, write_json


class RuntimeBusyError(Exception):
    """Another runtime uses this state directory; the message names its pid."""


def lock(state_dir: Path, paths: Iterable[Path]) -> IO[str]:
    """Locks the state directory until the file is closed or the process ends."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        file = open(state_dir / "lock", "a+")  # noqa: SIM115 (held until release)
    except OSError as error:
        raise LedgerError(f"{state_dir} cannot be used: {error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        pid = running_pid(state_dir)
        raise RuntimeBusyError(
            f"a local runtime (pid {pid}) is already running in {state_dir}; it applies changes of "
            "its manifests by itself, and `odradek local down` stops it"
        ) from None
    about = {"pid": os.getpid(), "manifests": [str(p) for p in paths], "since": time.time()}
    write_json(state_dir / "runtime.json", about)
    return file


def running_pid(state_dir: Path) -> int | None:
    """The pid of the runtime that holds the lock, if there is one."""
    try:
        with open(state_dir / "lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except FileNotFoundError:
        return None
    except OSError:
        pass
    try:
        return int(msgspec.json.decode((state_dir / "runtime.json").read_bytes())["pid"])
    except (OSError, ValueError, KeyError):
        return None
