"""The stories on kind as part of CI: `python -m odradek_e2e.ci SECONDS_LEFT`.

They run if this machine can run the cluster and enough time is left, given what it has built
already. Skipped stories are printed with the reason. A machine without the privileges for
containers is not a failure; a failed story is.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from odradek_e2e.chart import ROOT
from odradek_e2e.kind import cluster
from odradek_e2e.kind import engine as engines
from odradek_e2e.kind.places import KindError
from odradek_e2e.kind.steps import minutes, say
from odradek_images.build import cache_dir as image_cache
from odradek_testkit.kubernetes.programs import ProgramsMissingError

SLOWER = 1.5  # than on two idle cores: `make test` has just filled the page cache
IMAGE_SECONDS = 60
LOAD_SECONDS = 60
STORIES_SECONDS = 600  # at the least
DOWN_SECONDS = 60
LAST_STORY_SECONDS = 420  # the longest one, if it begins at the last moment
# The short ones; `make e2e` runs all.
STORIES = (
    "test_helm_test", "test_three_zones", "test_kubectl", "invalid_manifests", "needs_no_restart",
    "killed_broker", "secured_cluster",
)  # fmt: skip
NEEDED = ("broker", "operator")  # images; those with Java are five times as large
DEADLINE = "ODRADEK_E2E_DEADLINE"  # unix seconds; no story begins after it


def expected_seconds() -> float:
    """Seconds until the first story can begin."""
    steps = cluster.steps(engines.find())
    wait = sum(step.seconds for step in steps if not step.is_done())
    images = sum(not any(image_cache().glob(f"{name}-*.tar")) for name in NEEDED)
    return SLOWER * (wait + IMAGE_SECONDS * images + LOAD_SECONDS)


def obstacle() -> str:
    """Why this machine cannot run the cluster; empty if no reason is known."""
    engine = engines.find()
    if engine.stock:
        return ""
    if os.geteuid() != 0:
        return "no container engine with a registry answers, and a private one needs root"
    if missing := engines.missing_capabilities():
        return f"containers need {', '.join(missing)}, which this machine has not got"
    return ""


def run(left_s: float) -> int:
    began = time.monotonic()
    if why := obstacle():
        return not_run(why)
    expected = expected_seconds()
    if expected + STORIES_SECONDS + LAST_STORY_SECONDS + DOWN_SECONDS > left_s:
        why = f"until the first story it takes about {minutes(expected)}, the stories at least "
        return not_run(f"{why}{minutes(STORIES_SECONDS)}, and there are {minutes(left_s)} left")
    say(f"Stories on kind: the first begins in about {minutes(expected)}.")
    try:
        cluster.up()
        archives = _python("odradek_images.build", *NEEDED).split()
        _python("odradek_e2e.kind", "load", *archives)
    except (KindError, ProgramsMissingError, subprocess.CalledProcessError) as error:
        cluster.down()
        return not_run(f"the cluster could not be had: {error}")
    say(f"Running these stories: {', '.join(STORIES)}. `make e2e` runs all of them.")
    deadline = time.time() + left_s - (time.monotonic() - began)
    deadline -= DOWN_SECONDS + LAST_STORY_SECONDS
    try:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-m", "kind", "e2e/e2e_tests/kind",
             "-k", " or ".join(STORIES)],
            cwd=ROOT, env={**os.environ, DEADLINE: str(deadline)}, check=False,
        ).returncode  # fmt: skip
    finally:
        cluster.down()


def not_run(why: str) -> int:
    say(f"NOT RUN: the stories on kind (make e2e): {why}")
    return 0


def _python(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def main(words: Sequence[str]) -> int:
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    return run(float(words[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
