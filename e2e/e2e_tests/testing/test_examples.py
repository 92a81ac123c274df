"""examples/testing, as its readers run it: those of its clients that are installed here."""

import subprocess
import sys

from odradek_testkit.tiers import ROOT


def test_the_examples_pass() -> None:
    """FastStream and PySpark are in environments of their own; without them their tests skip."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"],
        cwd=ROOT / "examples" / "testing", capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
