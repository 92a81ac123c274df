"""kubeflow's Spark operator on kind: its program and chart from its Go module, on our Spark image.

    kubeflow.install(kubeconfig())       # the image is built and loaded, the chart installed
    kubeflow.uninstall(kubeconfig())     # with the CRDs that only it brings

Its own image is Spark's with one more program, and so is ours. The chart is used as it is.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from pathlib import Path

from odradek_e2e import release
from odradek_e2e.chart import helm
from odradek_e2e.kind import cluster
from odradek_e2e.kind import engine as engines
from odradek_images import archive, build
from odradek_images.table import IMAGES
from odradek_testkit.kubernetes.programs import (
    SPARK_OPERATOR,
    SPARK_OPERATOR_MODULE,
    module_dir,
    program,
)

RELEASE, NAMESPACE = "spark-operator", "spark-operator"
REPOSITORY = "kubeflow/spark-operator"
REGISTRY = "localhost"  # part of the name only; nothing is pulled
PROGRAM = "usr/bin/spark-operator"
OWN_CRDS = ("scheduledsparkapplications", "sparkconnects")  # our chart brings SparkApplication


def chart() -> Path:
    return module_dir(SPARK_OPERATOR_MODULE, SPARK_OPERATOR) / "charts" / "spark-operator-chart"


def install(kubeconfig: Path) -> None:
    engine = engines.find()
    cluster.load(engine, image())
    release.settle(
        RELEASE, NAMESPACE, "--create-namespace", "--set-json=spark.jobNamespaces=[\"\"]",
        f"--set=image.registry={REGISTRY}", f"--set=image.repository={REPOSITORY}",
        f"--set=image.tag={SPARK_OPERATOR}", "--set=image.pullPolicy=Never",
        "--wait", "--timeout=5m", kubeconfig=kubeconfig, chart=chart(),
    )  # fmt: skip


def uninstall(kubeconfig: Path) -> None:
    helm("uninstall", RELEASE, f"--namespace={NAMESPACE}", "--wait", kubeconfig=kubeconfig)
    names = [f"{kind}.sparkoperator.k8s.io" for kind in OWN_CRDS]
    cluster.kubectl("delete", "crd", "--ignore-not-found", *names)


def image() -> Path:
    """The Spark image with the operator's program, which it starts; kept by the Spark image."""
    base = build.build(IMAGES["spark"])
    target = base.with_name(f"spark-operator-{SPARK_OPERATOR}-{base.stem.rpartition('-')[2]}.tar")
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        directory = Path(scratch)
        with tarfile.open(base) as tar:
            tar.extractall(directory, filter="data")
        (made,) = json.loads((directory / "manifest.json").read_text())
        config = json.loads((directory / made["Config"]).read_text())["config"]
        layers = [
            archive.Layer(directory / name, name.partition("/")[0]) for name in made["Layers"]
        ]
        tree = directory / "tree"
        (tree / PROGRAM).parent.mkdir(parents=True)
        shutil.copy2(program("spark-operator"), tree / PROGRAM)
        layers.append(archive.write_layer(directory / "program.layer", tree, when=0))
        # Spark's entrypoint executes other commands unchanged, with SPARK_HOME set.
        config["Entrypoint"] = [*config["Entrypoint"], f"/{PROGRAM}"]
        tag = f"{REGISTRY}/{REPOSITORY}:{SPARK_OPERATOR}"
        archive.write_archive(target, [archive.Built(tag, layers, config)])
    return target
