"""The operator's memory: numpy is loaded by the first proposal, not at the start."""

from __future__ import annotations

import subprocess
import sys

LOOK = (
    "import sys, odradek_operator.local.runtime, odradek_operator.reconcile.kafka; "
    "print('numpy' in sys.modules)"
)


def test_the_operator_starts_without_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
