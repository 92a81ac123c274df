"""examples/secure as it is: its users write and read with their own credentials, and no more."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Three brokers with TLS, and each command as a process of its own.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "secure"
ORDERS = "".join(json.dumps({"customer": name}) + "\n" for name in ("ann", "bob", "ann"))


def odradek(*words: str, stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "odradek_cli", *words],
        input=stdin, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_every_user_of_the_example_does_its_part(tmp_path: Path) -> None:
    """1. from nothing: cluster, users and topics are ready  2. shop writes orders, billing reads
    them  3. what nobody granted is refused, and so is a client without a login. The pipeline of the
    example is left out: local/test_pipeline_users.py has one."""
    directory = tmp_path / "secure"
    shutil.copytree(EXAMPLE, directory, ignore=shutil.ignore_patterns(".odradek", "pipeline.yaml"))
    where = ("-f", str(directory))
    shop, billing = ("--user", "shop", *where), ("--user", "billing", *where)
    try:
        odradek("local", "up", "--detach", *where)
        found = json.loads(odradek("local", "status", "--json", *where).stdout)
        users = found["clusters"]["default/secure"]["users"]
        assert {u["conditions"][0]["status"] for u in users.values()} == {"True"}
        assert len(users) == 3

        odradek(*shop, "produce", "orders", stdin=ORDERS)
        read = ("consume", "orders", "--group", "billing-1", "--from-beginning", "--until-end")
        rows = odradek(*billing, *read).stdout.splitlines()
        assert sorted(rows) == sorted(ORDERS.splitlines())

        reader = odradek(*shop, "consume", "orders", "--until-end", code=1)
        assert "AUTHORIZATION_FAILED" in reader.stderr
        writer = odradek(*billing, "produce", "orders", stdin="{}\n", code=1)
        assert "AUTHORIZATION_FAILED" in writer.stderr
        assert "serves users only (scram-sha-512)" in odradek(*where, "topics", code=2).stderr
    finally:
        odradek("local", "down", "--delete", "--yes", *where)
