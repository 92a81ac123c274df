"""examples/secure as it is: its users write and read with their own credentials, and no more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cli_tests.test_local import odradek
from odradek_testkit.waiting import wait_until

# Three brokers and a Spark driver, each a process of its own.
pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "secure"
PATIENCE_S = 300.0
ORDERS = "".join(json.dumps({"customer": name}) + "\n" for name in ("ann", "bob", "ann"))


def test_every_user_of_the_example_does_its_part(tmp_path: Path) -> None:
    """1. from nothing: cluster, users, topics and pipeline are ready  2. shop writes orders, the
    pipeline counts them as the user totals, billing reads the counts  3. what nobody granted is
    refused, and so is a client without a login."""
    pytest.importorskip("pyspark", reason="pyspark is missing: make spark")
    directory = tmp_path / "secure"
    shutil.copytree(EXAMPLE, directory, ignore=shutil.ignore_patterns(".odradek"))
    where = ("-f", str(directory))
    shop, billing = ("--user", "shop", *where), ("--user", "billing", *where)
    try:
        odradek("local", "up", "--detach", *where)
        found = json.loads(odradek("local", "status", "--json", *where).stdout)
        users = found["clusters"]["default/secure"]["users"]
        assert {u["conditions"][0]["status"] for u in users.values()} == {"True"}
        assert len(users) == 3
        assert found["pipelines"]["default/totals"]["status"]["state"] == "Running"

        odradek(*shop, "produce", "orders", stdin=ORDERS)
        read = ("consume", "totals", "--group", "billing-1", "--from-beginning", "--until-end")

        counted: dict[str, int] = {}

        def all_orders_are_counted() -> bool:
            for line in odradek(*billing, *read).stdout.splitlines():
                row = json.loads(line)
                counted[row["customer"]] = row["orders"]
            return counted == {"ann": 2, "bob": 1}

        wait_until(all_orders_are_counted, "billing reads the counts", PATIENCE_S)

        reader = odradek(*shop, "consume", "orders", "--until-end", code=1)
        assert "AUTHORIZATION_FAILED" in reader.stderr
        writer = odradek(*billing, "produce", "orders", stdin="{}\n", code=1)
        assert "AUTHORIZATION_FAILED" in writer.stderr
        assert "serves users only (scram-sha-512)" in odradek(*where, "topics", code=2).stderr
    finally:
        odradek("local", "down", "--delete", "--yes", *where)
