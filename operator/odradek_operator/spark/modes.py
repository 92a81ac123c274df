"""Which operator runs SparkApplications: by the option --spark and the kinds that exist. No I/O.

| mode     | SparkApplications are run by                                                        |
|----------|-------------------------------------------------------------------------------------|
| off      | nobody; SparkPipelines are ignored                                                  |
| native   | this operator                                                                       |
| kubeflow | kubeflow's Spark operator                                                           |
| auto     | kubeflow's operator where its CRDs are served, otherwise this one                   |

Both use the kind SparkApplication of sparkoperator.k8s.io, whose CRD our chart installs too. Only
kubeflow's operator brings ScheduledSparkApplication: its presence decides.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

Mode = Literal["off", "auto", "native", "kubeflow"]
Runner = Literal["", "native", "kubeflow"]

GROUP_VERSION = "sparkoperator.k8s.io/v1beta2"
ALIASES = {"spark-operator": "kubeflow"}  # of versions before 0.2.0
MODES = ("off", "auto", "native", "kubeflow", *ALIASES)


def runner(mode: Mode, served: Collection[str]) -> Runner:
    """`served`: plural names of the resources of GROUP_VERSION; empty result: no operator."""
    if mode == "off" or "sparkapplications" not in served:
        return ""
    if mode == "auto":
        return "kubeflow" if "scheduledsparkapplications" in served else "native"
    return mode
