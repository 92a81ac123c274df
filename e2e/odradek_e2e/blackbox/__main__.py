"""`python -m odradek_e2e.blackbox --engine both`: a server per engine, the suite, a comparison.

Exit code 0 if every test passed or was skipped on every engine. The expected behaviour is Apache
Kafka's, so the tests' own switch for the engine is "apache" for both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from odradek_e2e.blackbox import SETTINGS
from odradek_e2e.blackbox.secured import secured
from odradek_testkit.engines import RunningApacheKafka, RunningBroker, Server

ROOT = Path(__file__).parents[3]
ENGINES: dict[str, type[RunningApacheKafka] | type[RunningBroker]] = {
    "apache": RunningApacheKafka,
    "embedded": RunningBroker,
}

Results = dict[str, str]  # test → passed, failed or skipped


class Address(NamedTuple):
    """Where the suite's clients connect, and the file of their TLS and SASL settings."""

    bootstrap: str
    client_config: Path | None


def main() -> int:
    parser = argparse.ArgumentParser(prog="blackbox", description=__doc__)
    parser.add_argument("--engine", default="both", choices=[*ENGINES, "both"])
    parser.add_argument("--bootstrap", default="", help="a cluster that runs already")
    parser.add_argument("--client-config", default="", help="its TLS and SASL settings, as a file")
    parser.add_argument("--security", default="plaintext", choices=["plaintext", "sasl_ssl"])
    parser.add_argument("-k", default="", help="only tests whose names match")
    asked = parser.parse_args()
    found: dict[str, Results] = {}
    with tempfile.TemporaryDirectory(prefix="odradek-blackbox-") as place:
        directory = Path(place)
        if asked.bootstrap:
            config = Path(asked.client_config) if asked.client_config else None
            address = Address(asked.bootstrap, config)
            found[asked.bootstrap] = run_suite(address, asked.k, directory / "given.xml")
        else:
            for name in ENGINES if asked.engine == "both" else [asked.engine]:
                with started(name, asked.security, directory / name) as server:
                    address = Address(server.bootstrap, server.client_config)
                    found[name] = run_suite(address, asked.k, directory / f"{name}.xml")
    return say(found)


def started(name: str, security: str, directory: Path) -> AbstractContextManager[Server]:
    engine = ENGINES[name]
    if security == "sasl_ssl":
        return secured(engine, SETTINGS, directory)
    return engine(SETTINGS, directory=directory)


def run_suite(address: Address, wanted: str, report: Path) -> Results:
    print(f"--- {address.bootstrap}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"--junitxml={report}", "-k", wanted, str(ROOT / "e2e" / "blackbox")]
    environment = {
        **os.environ,
        "ODRADEK_BLACKBOX_BOOTSTRAP": address.bootstrap,
        "ODRADEK_BLACKBOX_CLIENT_CONFIG": str(address.client_config or ""),
        "ODRADEK_TEST_ENGINE": "apache",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if not report.exists():
        sys.exit(f"pytest ended with code {done.returncode} and no report")
    return read_report(report)


def read_report(report: Path) -> Results:
    results = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = {child.tag for child in case}
        failed = kinds & {"failure", "error"}
        results[name] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
    return results


def say(found: dict[str, Results]) -> int:
    """Per engine how many passed; then every test whose result differs."""
    print()
    for engine, results in found.items():
        counts = Counter(results.values())
        print(
            f"{engine}: {len(results)} tests, {counts['passed']} passed, "
            f"{counts['failed']} failed, {counts['skipped']} skipped"
        )
    names = sorted({name for results in found.values() for name in results})
    different = [n for n in names if len({r.get(n, "absent") for r in found.values()}) > 1]
    for name in different:
        ends = ", ".join(f"{e} {r.get(name, 'absent')}" for e, r in found.items())
        print(f"differs: {name}: {ends}")
    if len(found) > 1:
        print(f"{len(different)} differences")
    return 1 if any("failed" in results.values() for results in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
