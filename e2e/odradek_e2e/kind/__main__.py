"""`python -m odradek_e2e.kind up | down | load ARCHIVE… | status`; see docs/how-to/kind.md."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from odradek_e2e.kind import cluster
from odradek_e2e.kind import engine as engines
from odradek_e2e.kind.places import KindError, kubeconfig
from odradek_e2e.kind.steps import minutes, say
from odradek_testkit.kubernetes.programs import ProgramsMissingError, cache_dir


def up() -> None:
    began = time.monotonic()
    cluster.up()
    say(f"The cluster is up ({minutes(time.monotonic() - began)}):")
    print(cluster.kubectl("get", "nodes", "-L", "topology.kubernetes.io/zone"), end="")
    print(f"\nexport KUBECONFIG={kubeconfig()}")
    print(f"export PATH={cache_dir()}:$PATH   # kubectl, helm, kind")


def load(archives: Sequence[str]) -> None:
    engine = engines.find()
    for name in archives:
        began = time.monotonic()
        nodes = cluster.load(engine, Path(name))
        said = f"loaded into {', '.join(nodes)}" if nodes else "is on all workers already"
        say(f"{Path(name).name} {said} ({minutes(time.monotonic() - began)})")


def status() -> None:
    print(cluster.kubectl("get", "nodes,pods", "--all-namespaces", "-o", "wide"), end="")


def main(words: Sequence[str]) -> int:
    try:
        match words:
            case ["up"]:
                up()
            case ["down"]:
                cluster.down()
            case ["load", *archives]:
                load(archives)
            case ["status"]:
                status()
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except (KindError, ProgramsMissingError) as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
