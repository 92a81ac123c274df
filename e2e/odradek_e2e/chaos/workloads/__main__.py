"""Runs one workload; see the package's docstring."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

from odradek_e2e.chaos.workloads.job import Job

MODULES = {"final": ("readers", "final")}


def main() -> None:
    name, text = sys.argv[1:]
    module, function = MODULES.get(name, (name, "run"))
    found = importlib.import_module(f"odradek_e2e.chaos.workloads.{module}")
    act: Callable[[Job], None] = getattr(found, function)
    job = Job.of(text)
    job.end_on_sigterm()
    act(job)


if __name__ == "__main__":
    main()
