"""The container engine that the nodes run on.

The user's own engine, if it answers and reaches an image registry: then the cluster is stock kind.
Otherwise a private one from Debian's packages, with its own socket and directories, so that no
other engine on this machine is affected. ODRADEK_KIND=stock and ODRADEK_KIND=local force the
choice.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import psutil

from odradek_e2e.kind.places import BRIDGE, FILES, NAME, KindError, command, home, run_dir

STOCK_NODE = "kindest/node:v1.34.0"  # of this kind version
NETWORK = "kind"
PACKAGES = ("docker.io", "containerd", "runc", "iptables", "debootstrap", "kmod")
CAP_SYS_RESOURCE = 24
NEEDED_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}
START_SECONDS = 60.0
STOP_SECONDS = 60.0
REGISTRY_SECONDS = 20.0
OVERRIDE = "ODRADEK_KIND"


@dataclass(frozen=True)
class ContainerEngine:
    """Docker, as the machine has it or a private one that `kind-up` starts."""

    stock: bool  # images come from a registry
    environment: dict[str, str] = field(default_factory=dict)

    def docker(
        self, *words: str | Path, stdin: BinaryIO | None = None, timeout_s: float | None = None
    ) -> str:
        program = "docker" if self.stock else "/usr/bin/docker"
        return command([program, *words], env=self.environment, stdin=stdin, timeout_s=timeout_s)


def find() -> ContainerEngine:
    """The engine that this machine's cluster uses, or would use; nothing is started."""
    wanted = os.environ.get(OVERRIDE, "")
    if wanted == "stock" or (not wanted and not _was_local() and _registry_answers()):
        return ContainerEngine(stock=True)
    return ContainerEngine(stock=False, environment=_environment())


def _was_local() -> bool:
    return (home() / "docker").exists()


def _registry_answers() -> bool:
    own = ContainerEngine(stock=True)
    try:
        own.docker("version", timeout_s=REGISTRY_SECONDS)
        own.docker("manifest", "inspect", STOCK_NODE, timeout_s=REGISTRY_SECONDS)
    except KindError:
        return False
    return True


def _environment() -> dict[str, str]:
    programs = run_dir() / "bin"  # kind calls `docker`: find the one of the private engine
    return {
        "DOCKER_HOST": f"unix://{run_dir() / 'docker.sock'}",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }


# -- the private one -------------------------------------------------------------------------------


def missing_packages() -> list[str]:
    """Debian's packages that the private engine needs and the machine lacks."""
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *PACKAGES],
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    there = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return [name for name in PACKAGES if name not in there]


def install_packages() -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise KindError(
            "No container engine with a registry answers, and a private one takes root and "
            "Debian's packages. As root: apt-get install -y " + " ".join(PACKAGES)
        )
    # The services of these packages must not start: the private engine has its own socket.
    policy = Path("/usr/sbin/policy-rc.d")
    made = not policy.exists()
    if made:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        command(["apt-get", "update", "-qq"], env=quiet)
        command(["apt-get", "install", "-y", "-qq", "--no-install-recommends",
                 *missing_packages()], env=quiet)  # fmt: skip
    finally:
        if made:
            policy.unlink()


def start() -> None:
    """Starts the private engine unless it runs; it outlives this process."""
    if running():
        return
    root = run_dir()
    (root / "bin").mkdir(parents=True, exist_ok=True)
    docker = root / "bin" / "docker"
    docker.unlink(missing_ok=True)
    docker.symlink_to("/usr/bin/docker")
    (root / "docker.pid").unlink(missing_ok=True)
    words = [
        "dockerd", f"--host=unix://{root / 'docker.sock'}", f"--data-root={home() / 'docker'}",
        f"--exec-root={root / 'exec'}", f"--pidfile={root / 'docker.pid'}", "--bridge=none",
        "--storage-driver=overlay2", *_runtime(),
    ]  # fmt: skip
    with open(root / "dockerd.log", "ab") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    give_up = time.monotonic() + START_SECONDS
    while not running():
        if process.poll() is not None or time.monotonic() > give_up:
            process.kill()
            said = (root / "dockerd.log").read_text(errors="replace")
            raise KindError(f"dockerd does not start, see {root / 'dockerd.log'}:\n{said[-2000:]}")
        time.sleep(0.2)
    engine = ContainerEngine(stock=False, environment=_environment())
    if NETWORK not in engine.docker("network", "ls", "--format={{.Name}}").split():
        # A name of our own for the bridge tells its rules from those of other engines.
        engine.docker("network", "create", f"--opt=com.docker.network.bridge.name={BRIDGE}",
                      "--opt=com.docker.network.bridge.enable_ip_masquerade=true",
                      NETWORK)  # fmt: skip


def _bounding_set() -> int:
    return int(Path("/proc/self/status").read_text().partition("CapBnd:")[2].split()[0], 16)


def missing_capabilities() -> list[str]:
    """The capabilities that a node needs and this machine lacks."""
    return [name for name, bit in NEEDED_CAPABILITIES.items() if not _bounding_set() >> bit & 1]


def _runtime() -> list[str]:
    """A machine without CAP_SYS_RESOURCE cannot give it to a privileged container."""
    if _bounding_set() >> CAP_SYS_RESOURCE & 1:
        return []
    wrapper = FILES / "runc-without-sys-resource"
    return [f"--add-runtime=odradek={wrapper}", "--default-runtime=odradek"]


def running() -> bool:
    if not (run_dir() / "docker.sock").exists():
        return False
    try:
        ContainerEngine(stock=False, environment=_environment()).docker("version", timeout_s=10)
    except KindError:
        return False
    return True


def stop() -> None:
    """Ends the private engine: its network, then its process, which the pid file names."""
    if running():
        with contextlib.suppress(KindError):
            ContainerEngine(stock=False, environment=_environment()).docker(
                "network", "rm", NETWORK
            )
    pid_file = run_dir() / "docker.pid"
    if not pid_file.exists():
        return
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already
        _end(psutil.Process(int(pid_file.read_text())))
    for name in ("docker.pid", "docker.sock"):
        (run_dir() / name).unlink(missing_ok=True)


def _end(process: psutil.Process) -> None:
    if "dockerd" not in process.name():  # the pid belongs to another program by now
        return
    process.terminate()
    give_up = time.monotonic() + STOP_SECONDS
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > give_up:
            raise KindError(f"dockerd (pid {process.pid}) does not end; its log is in {run_dir()}")
        time.sleep(0.2)


def node_containers(engine: ContainerEngine) -> list[str]:
    listed = engine.docker("ps", "--all", "--format={{json .Names}}",
                           f"--filter=label=io.x-k8s.kind.cluster={NAME}")  # fmt: skip
    return sorted(json.loads(line) for line in listed.splitlines())
