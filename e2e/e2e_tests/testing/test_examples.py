"""examples/testing, as its readers run it; a client that is missing here is a failure."""

import os
import subprocess
import sys

import pytest

from odradek_testkit.tiers import ROOT

EXAMPLES = ROOT / "examples" / "testing"
# Of these the environment has each (requirements.lock); Spark is installed by `make spark`.
PYTHON_CLIENTS = ("test_audit.py", "test_invoices.py", "test_stream.py")
SPARK = "test_totals.py"
# Spark's JVM lives for a few seconds: the cheap compiler is the fast one.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def run_examples(*names: str) -> str:
    """The summary of pytest, in which nothing failed and nothing was skipped."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider",
         *(f"tests/{name}" for name in names)],
        cwd=EXAMPLES, env={**os.environ, "JDK_JAVA_OPTIONS": JVM},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    summary = done.stdout.splitlines()[-1]
    assert "skipped" not in summary, done.stdout
    return summary


def test_every_example_is_run() -> None:
    found = {path.name for path in (EXAMPLES / "tests").glob("test_*.py")}
    assert found == {*PYTHON_CLIENTS, SPARK}


def test_confluent_kafka_aiokafka_and_faststream() -> None:
    assert "5 passed" in run_examples(*PYTHON_CLIENTS)


@pytest.mark.spark
def test_pyspark() -> None:
    if not os.environ.get("ODRADEK_REQUIRE_TOOLS"):
        pytest.importorskip("pyspark", reason="pyspark is missing: make spark")
    assert "1 passed" in run_examples(SPARK)
