"""Commands to the control socket of one of our brokers (odradek_broker/testing/control.py)."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

TIMEOUT_S = 30.0


class ControlError(Exception):
    """The broker refused a command; the text says why."""


def command(path: Path, **request: Any) -> None:
    """Returns when the command has taken effect."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as answers:
            line = answers.readline()
    if not line:
        raise ControlError("the broker ended before it answered")
    answer = json.loads(line)
    if "error" in answer:
        raise ControlError(answer["error"])
