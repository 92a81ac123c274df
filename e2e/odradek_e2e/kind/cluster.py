"""The cluster: one control plane and three workers, each worker in a zone of its own."""

import contextlib
import time
from pathlib import Path

import yaml

from odradek_e2e.kind import engine as engines
from odradek_e2e.kind import leftovers, node_image
from odradek_e2e.kind.engine import ContainerEngine
from odradek_e2e.kind.places import NAME, NODES, ZONES, KindError, command, kubeconfig, run_dir
from odradek_e2e.kind.steps import Step, carry_out, say
from odradek_testkit.kubernetes.programs import COREDNS, cache_dir, program

# Seconds on two idle cores, in this order (they share Go's build cache).
BUILD_SECONDS = {
    "kube-apiserver": 360, "kube-controller-manager": 60, "kube-scheduler": 20, "kubelet": 55,
    "kubeadm": 40, "kube-proxy": 20, "kubectl": 20, "etcd": 90, "coredns": 120, "helm": 120,
    "local-path-provisioner": 100, "kind": 20, "pause": 2,
}  # fmt: skip
NODES_SECONDS = 300
# Each runs once: without leader election a busy machine does not restart a controller that was late
# to renew its Lease. And nothing in this etcd has to survive a crash of the machine.
NO_LEASE = {"extraArgs": {"leader-elect": "false"}}
PATIENT: dict[str, object] = {
    "controllerManager": NO_LEASE,
    "scheduler": NO_LEASE,
    "etcd": {"local": {"extraArgs": {"unsafe-no-fsync": "true"}}},
}
LOADED = "/kind/odradek-loaded"  # a file in a node that lists its archives


def up() -> ContainerEngine:
    engine = engines.find()
    run_dir().mkdir(parents=True, exist_ok=True)
    if engine.stock:
        say("Using stock kind with images from a registry.")
    else:
        say("No image registry answers: building nodes from Debian's packages and Go modules.")
    carry_out(steps(engine))
    wait_for_nodes()
    return engine


def steps(engine: ContainerEngine) -> list[Step]:
    if engine.stock:
        return [_built("kind"), _built("kubectl"), _built("helm"), _created(engine)]
    return [
        Step("Debian's container engine", 40, lambda: not engines.missing_packages(),
             engines.install_packages),
        *(_built(name) for name in sorted(node_image.PROGRAMS, key=_build_order)),
        *(Step(f"Debian for the {name}", seconds, node_image.tree(name).exists,
               lambda name=name: node_image.make_tree(name))  # type: ignore[misc]
          for name, seconds in (("node", 75), ("tools", 40))),
        Step("the private container engine", 3, engines.running, _start_engine),
        Step("the image of the nodes", 60, lambda: _node_image_exists(engine),
             lambda: node_image.build(engine)),
        _created(engine),
    ]  # fmt: skip


def _build_order(name: str) -> int:
    """Programs whose build fills the cache for the others come first."""
    return list(BUILD_SECONDS).index(name)


def _built(name: str) -> Step:
    def build() -> None:
        program(name)

    return Step(f"building {name}", BUILD_SECONDS[name], (cache_dir() / name).exists, build)


def _start_engine() -> None:
    leftovers.remember()
    leftovers.make_room()
    engines.start()


def _node_image_exists(engine: ContainerEngine) -> bool:
    """According to the engine; while it does not run, according to a file."""
    return node_image.exists(engine) if engines.running() else node_image.was_built()


def _created(engine: ContainerEngine) -> Step:
    def is_done() -> bool:
        with contextlib.suppress(KindError):
            return set(NODES) <= set(engines.node_containers(engine)) and _answers()
        return False

    def create() -> None:
        if engines.node_containers(engine):  # left by an interrupted attempt
            _kind(engine, "delete", "cluster", f"--name={NAME}")
        path = run_dir() / "cluster.yaml"
        path.write_text(yaml.safe_dump(cluster_config(engine)))
        image = engines.STOCK_NODE if engine.stock else node_image.tag()
        _kind(engine, "create", "cluster", f"--name={NAME}", f"--image={image}",
              f"--config={path}", f"--kubeconfig={kubeconfig()}",
              f"--wait={NODES_SECONDS}s", "--retain")  # fmt: skip

    return Step("one control plane and three workers", 60, is_done, create)


def cluster_config(engine: ContainerEngine) -> dict[str, object]:
    workers = [
        {"role": "worker", "labels": {"topology.kubernetes.io/zone": zone}} for zone in ZONES
    ]
    patch: dict[str, object] = {"kind": "ClusterConfiguration", **PATIENT}
    if not engine.stock:
        patch["dns"] = {"imageTag": COREDNS}
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": "control-plane"}, *workers],
        "kubeadmConfigPatches": [yaml.safe_dump(patch)],
    }


def _answers() -> bool:
    kubectl("get", "--raw=/readyz")
    return True


def _kind(engine: ContainerEngine, *words: str) -> str:
    return command([program("kind"), *words], env=engine.environment)


def kubectl(*words: str) -> str:
    return command([program("kubectl"), f"--kubeconfig={kubeconfig()}", *words])


def wait_for_nodes() -> None:
    """`kind create --wait` waits for the control plane only."""
    kubectl("wait", "node", "--all", "--for=condition=Ready", f"--timeout={NODES_SECONDS}s")
    kubectl("wait", "deployment", "--all", "--all-namespaces", "--for=condition=Available",
            f"--timeout={NODES_SECONDS}s")  # fmt: skip


def load(engine: ContainerEngine, archive: Path) -> list[str]:
    """Imports an image archive into the workers that lack it; the names of those workers."""
    done = []
    for node in NODES[1:]:
        mark = archive.name.rpartition("-")[0]
        if loaded(engine, mark, node) == archive.name:
            continue
        with open(archive, "rb") as content:
            engine.docker("exec", "-i", node, "ctr", "-n", "k8s.io", "images", "import",
                          "--all-platforms", "--digests", "-", stdin=content)  # fmt: skip
        note = f"mkdir -p {LOADED} && echo {archive.name} > {LOADED}/{mark}"
        engine.docker("exec", node, "sh", "-c", note)
        done.append(node)
    return done


def loaded(engine: ContainerEngine, image: str, node: str = NODES[1]) -> str:
    """The last loaded archive of an image and version ("operator-0.1.0"), or empty."""
    with contextlib.suppress(KindError):
        return engine.docker("exec", node, "cat", f"{LOADED}/{image}").strip()
    return ""


def tag(engine: ContainerEngine, name: str, other: str) -> None:
    """Another name for an image that the workers have."""
    for node in NODES[1:]:
        images = ("exec", node, "ctr", "-n", "k8s.io", "images")
        # containerd prefixes the name with the default registry.
        full = [one for one in engine.docker(*images, "ls", "-q").split() if one.endswith(name)]
        if not full:
            raise KindError(f"{node} has no image {name}: load it first")
        longer = f"{full[0].removesuffix(name)}{other}"
        engine.docker(*images, "tag", "--force", full[0], longer)


def down() -> None:
    """Removes the cluster, its engine and what they changed; built files stay in the cache."""
    engine = engines.find()
    began = time.monotonic()
    with contextlib.suppress(KindError):
        if engine.stock or engines.running():
            _kind(engine, "delete", "cluster", f"--name={NAME}", f"--kubeconfig={kubeconfig()}")
    if not engine.stock:
        engines.stop()
        for line in leftovers.put_back():
            say(line)
    say(f"The cluster is removed ({time.monotonic() - began:.0f} s). The build cache is kept.")
