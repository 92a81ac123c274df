"""The operator's program: `python -m odradek_operator.main --all-namespaces`.

Options also come from the environment, for a Deployment: ODRADEK_NAMESPACES (comma-separated;
empty: all), ODRADEK_BROKER_IMAGE, ODRADEK_APACHE_IMAGE, ODRADEK_SPARK, ODRADEK_SPARK_IMAGE,
ODRADEK_LEASE_NAMESPACE, ODRADEK_PORT, ODRADEK_LOG_LEVEL. Access to the API server comes
from the pod's service account, or from KUBECONFIG.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from odradek_operator.spark.modes import ALIASES, MODES

try:
    import httpx2
    from lightkube import Client

    from odradek_operator.kubernetes.dry_run import print_plan
    from odradek_operator.kubernetes.operator import Operator, OperatorOptions
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"the operator needs {error.name}: pip install 'odradek[operator]'")

REQUEST_TIMEOUT_S = 15.0
APACHE_IMAGE = "odradek/apache:4.3.1"


def parse_arguments(arguments: Sequence[str] | None = None) -> OperatorOptions:
    env = os.environ
    parser = argparse.ArgumentParser(
        prog="odradek-operator", description="Reconciles KafkaClusters, Topics and SparkPipelines"
    )
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--namespace",
        "-n",
        action="append",
        default=[],
        help="watch this namespace only; may be given several times",
    )
    scope.add_argument("--all-namespaces", "-A", action="store_true", help="watch all namespaces")
    parser.add_argument(
        "--image",
        default=env.get("ODRADEK_BROKER_IMAGE") or _default_image(),
        help="broker image of clusters that set none (default: %(default)s)",
    )
    parser.add_argument(
        "--apache-image",
        default=env.get("ODRADEK_APACHE_IMAGE") or APACHE_IMAGE,
        help="the same for engine apache (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=int(env.get("ODRADEK_PORT") or 8080),
        help="port of /metrics, /healthz and /readyz; 0: off",
    )
    parser.add_argument(
        "--lease-namespace",
        default=env.get("ODRADEK_LEASE_NAMESPACE") or None,
        help="namespace of the Lease for leader election; needed with several replicas",
    )
    parser.add_argument(
        "--no-nodes",
        action="store_true",
        help="do not read nodes (no rights): specs name the racks",
    )
    parser.add_argument(
        "--spark",
        default=env.get("ODRADEK_SPARK") or "off",
        choices=MODES,
        help="pipelines: off, run by this operator (native), by kubeflow's Spark operator, or by "
        "whichever is installed (auto)",
    )
    image = env.get("ODRADEK_SPARK_IMAGE") or _default_image("spark")
    parser.add_argument(
        "--spark-image",
        default=image,
        help="image of pipelines that set none (default: %(default)s)",
    )
    given = parser.parse_args(arguments)
    named = given.namespace
    if not named and not given.all_namespaces:
        named = [n.strip() for n in env.get("ODRADEK_NAMESPACES", "").split(",") if n.strip()]
        if not named and "ODRADEK_NAMESPACES" not in env:
            parser.error("one of --namespace and --all-namespaces is required")
    return OperatorOptions(
        namespaces=tuple(dict.fromkeys(named)),
        image=given.image,
        apache_image=given.apache_image,
        port=given.port or None,
        lease_namespace=given.lease_namespace,
        identity=f"{socket.gethostname()}-{os.getpid()}",
        nodes=not given.no_nodes,
        spark=ALIASES.get(given.spark, given.spark),
        spark_image=given.spark_image,
    )


def _default_image(name: str = "broker") -> str:
    try:
        return f"odradek/{name}:{version('odradek')}"
    except PackageNotFoundError:
        return f"odradek/{name}:latest"


async def run(options: OperatorOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop.set)
    client = Client(timeout=httpx2.Timeout(REQUEST_TIMEOUT_S))
    try:
        await Operator(options, client).run(stop)
    finally:
        client.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the operator; with `plan`, prints what the manifests on stdin would change."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["plan"]:
        sys.exit(print_plan(parse_arguments(["--all-namespaces", *given[1:]])))
    level = os.environ.get("ODRADEK_LOG_LEVEL", "INFO").upper()
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("httpx2", "httpcore2", "kopf", "aiohttp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    asyncio.run(run(parse_arguments(given)))


if __name__ == "__main__":
    main()
