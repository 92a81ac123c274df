"""The image of the nodes, as kind's own build makes it, without pulling anything.

Kind's base image is a Debian with systemd and containerd, some files of kind's, the Kubernetes
programs, and the images of the control plane imported into its containerd. Here the same is made of
Debian's packages, the files of kind's Go module, programs built with Go, and image archives with
one program each. Differences from kind's image: containerd, runc and the CNI plugins are Debian's,
and the network is files/kindnet.sh.

The suite stays bookworm: the systemd of later ones does not run on cgroup v1.
"""

import hashlib
import json
import re
import shutil
import time
from pathlib import Path

from odradek_e2e.kind.engine import ContainerEngine
from odradek_e2e.kind.places import FILES, KindError, command, home
from odradek_images import archive, debian
from odradek_testkit.kubernetes.programs import COREDNS, KIND, KUBERNETES, module_dir, program

RECIPE = "1"  # increase it to rebuild the image after a change of this file
NODE_PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "containerd", "runc", "containernetworking-plugins",
    "conntrack", "iptables", "nftables", "iproute2", "ethtool", "util-linux", "mount", "kmod",
    "libseccomp2", "pigz", "bash", "ca-certificates", "curl", "jq", "procps", "hostname",
    "e2fsprogs",
)  # fmt: skip
TOOLS_PACKAGES = ("iproute2", "iptables")  # kube-proxy, the network, the provisioner's helper
UNWANTED_UNITS = (
    "lib/systemd/system/multi-user.target.wants/*", "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/basic.target.wants/*", "etc/systemd/system/*.wants/*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
)  # fmt: skip
SERVICES = ("kubelet.service", "containerd.service", "undo-mount-hacks.service")
KUBERNETES_IMAGES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
PROGRAMS = (
    "kubeadm", "kubelet", "kubectl", "etcd", *KUBERNETES_IMAGES, "coredns", "pause",
    "local-path-provisioner", "kind", "helm",
)  # fmt: skip
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROVISIONER, HELPER = "local/local-path-provisioner:v1", "local/local-path-helper:v1"
DOCKERFILE = """\
FROM scratch
ADD root.tar /
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
"""


def tag() -> str:
    """Changes with the version of Kubernetes, the files and the recipe."""
    parts = (RECIPE, KIND, COREDNS, repr(NODE_PACKAGES), repr(TOOLS_PACKAGES), DOCKERFILE)
    digest = hashlib.sha256("\n".join(parts).encode())
    for path in sorted(FILES.iterdir()):
        digest.update(path.read_bytes())
    return f"local/kind-node:{KUBERNETES}-{digest.hexdigest()[:12]}"


def exists(engine: ContainerEngine) -> bool:
    return bool(engine.docker("images", "--quiet", tag()).strip())


def was_built() -> bool:
    """According to a file, for when the engine does not run."""
    return _note().exists() and _note().read_text() == tag()


def _note() -> Path:
    return home() / "node-image.tag"


def tree(name: str) -> Path:
    packages = {"node": NODE_PACKAGES, "tools": TOOLS_PACKAGES}[name]
    digest = hashlib.sha256(repr(packages).encode()).hexdigest()[:12]
    return home() / "trees" / f"{name}-{digest}"


def make_tree(name: str) -> None:
    target = tree(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        debian.make_system(target, {"node": NODE_PACKAGES, "tools": TOOLS_PACKAGES}[name])
    except debian.DebianError as error:
        raise KindError(str(error)) from error


def build(engine: ContainerEngine) -> None:
    work = home() / "node-image"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    root = work / "root"
    command(["cp", "-a", tree("node"), root])
    names = kubeadm_images()
    _add_files(root, names["pause"])
    _add_manifests(root)
    archive_path = _write_images(work, names)
    command(["tar", "-C", root, "--numeric-owner", "-cf", work / "root.tar", "."])
    shutil.rmtree(root)
    (work / "context").mkdir()
    (work / "root.tar").rename(work / "context" / "root.tar")
    (work / "context" / "Dockerfile").write_text(DOCKERFILE)
    base = "local/kind-base:building"
    engine.docker("build", "--quiet", f"--tag={base}", work / "context")
    _preload(engine, base, archive_path)
    engine.docker("image", "rm", base)
    shutil.rmtree(work)
    _note().write_text(tag())


def kubeadm_images() -> dict[str, str]:
    """Name → reference, as kubeadm wants them: {"etcd": "…/etcd:3.6.5-0", …}."""
    said = command([program("kubeadm"), "config", "images", "list",
                    f"--kubernetes-version={KUBERNETES}"])  # fmt: skip
    found = {one.rpartition(":")[0].rpartition("/")[2]: one for one in said.split()}
    found["coredns"] = f"{found['coredns'].rpartition(':')[0]}:{COREDNS}"
    return found


# -- the node's files ------------------------------------------------------------------------------


def _add_files(root: Path, pause: str) -> None:
    source = module_dir("sigs.k8s.io/kind", KIND) / "images" / "base" / "files"
    command(["cp", "-rT", "--no-preserve=mode,ownership", source, root])
    for path in (*(root / "usr/local/bin").iterdir(), *(root / "kind/bin").iterdir()):
        path.chmod(0o755)
    for pattern in UNWANTED_UNITS:
        for path in root.glob(pattern):
            path.unlink()
    (root / "etc/systemd/system/containerd-fuse-overlayfs.service").unlink(missing_ok=True)
    with open(root / "etc/systemd/journald.conf", "a") as journal:
        journal.write("ReadKMsg=no\n")
    _link(root / "sbin/init", "/lib/systemd/systemd")
    for name in ("containerd", "ctr", "containerd-shim-runc-v2"):  # kind's paths, Debian's programs
        _link(root / "usr/local/bin" / name, f"/usr/bin/{name}")
    for name in ("etc/kubernetes/manifests", "kind/manifests", "opt/cni"):
        (root / name).mkdir(parents=True, exist_ok=True)
    _link(root / "opt/cni/bin", "/usr/lib/cni")
    for name in ("kubeadm", "kubelet", "kubectl"):
        shutil.copy(program(name), root / "usr/bin" / name)
    (root / "kind/version").write_text(KUBERNETES)
    _configure_containerd(root, pause)
    command(["chroot", root, "systemctl", "enable", *SERVICES])  # it only creates links
    # It would register binary formats in the kernel of the whole machine.
    command(["chroot", root, "systemctl", "mask", "systemd-binfmt.service"])


def _configure_containerd(root: Path, pause: str) -> None:
    path = root / "etc/containerd/config.toml"
    text = re.sub(r"^\[proxy_plugins.*?(?=^\[plugins)", "", path.read_text(), flags=re.M | re.S)
    text = re.sub(r'(sandbox_image = )".*"', rf'\g<1>"{pause}"', text)
    # Without CAP_SYS_RESOURCE containerd cannot lower the OOM score of a container.
    text = text.replace("restrict_oom_score_adj = false", "restrict_oom_score_adj = true")
    path.write_text(text)
    spec = json.loads(command(["chroot", root, "ctr", "oci", "spec"]))
    spec.setdefault("hooks", {}).setdefault("createContainer", []).append(
        {"path": "/kind/bin/mount-product-files.sh"}
    )
    spec["process"].pop("rlimits", None)
    (root / "etc/containerd/cri-base.json").write_text(json.dumps(spec))


def _add_manifests(root: Path) -> None:
    """Kind applies both after kubeadm is done."""
    shutil.copy(FILES / "kindnet.yaml", root / "kind/manifests/default-cni.yaml")
    source = module_dir("sigs.k8s.io/kind", KIND) / "pkg/build/nodeimage/const_storage.go"
    found = re.search(r"const defaultStorageManifest = `(.*)`\s*$", source.read_text(), re.S)
    if found is None:
        raise KindError(f"{source} has no storage manifest: another kind than {KIND}?")
    text = found[1].replace("` + storageProvisionerImage + `", PROVISIONER)
    text = text.replace("` + storageHelperImage + `", HELPER)
    (root / "kind/manifests/default-storage.yaml").write_text(text)


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


# -- the images in it ------------------------------------------------------------------------------


def _write_images(work: Path, names: dict[str, str]) -> Path:
    tools = archive.write_layer(work / "tools.layer", tree("tools"))
    bin_dir = "usr/local/bin"

    def one(tag: str, *files: tuple[str, Path], base: bool = False) -> archive.Built:
        staging = work / "staging"
        shutil.rmtree(staging, ignore_errors=True)
        (staging / "tmp").mkdir(parents=True)
        (staging / "tmp").chmod(0o1777)
        for name, source in files:
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, staging / name)
        layer = archive.write_layer(work / f"{tag.replace('/', '_')}.layer", staging, when=0)
        entrypoint = [f"/{name}" for name, _ in files[:1]]
        config = {"Env": [PATH], "WorkingDir": "/", "Entrypoint": entrypoint}
        return archive.Built(tag, [tools, layer] if base else [layer], config)

    images = [
        one(names[name], (f"{bin_dir}/{name}", program(name)), base=name == "kube-proxy")
        for name in (*KUBERNETES_IMAGES, "etcd", "coredns", "pause")
    ]
    kindnet = [(f"{bin_dir}/kindnet.sh", FILES / "kindnet.sh"),
               (f"{bin_dir}/kubectl", program("kubectl"))]  # fmt: skip
    provisioner = (f"{bin_dir}/local-path-provisioner", program("local-path-provisioner"))
    images += [
        one("local/kindnet:v1", *kindnet, base=True),
        one(PROVISIONER, provisioner),
        archive.Built(HELPER, [tools], {"Env": [PATH]}),
    ]
    target = work / "images.tar"
    archive.write_archive(target, images)
    return target


def _preload(engine: ContainerEngine, base: str, images: Path) -> None:
    """Imports the images with the image's own containerd, in a container that is then committed."""
    name = "odradek-node-image"
    if engine.docker("ps", "--all", "--quiet", f"--filter=name={name}").strip():
        engine.docker("rm", "--force", name)
    engine.docker("run", "--detach", f"--name={name}", "--network=none", "--privileged",
                  "--entrypoint=sleep", base, "infinity")  # fmt: skip
    engine.docker("exec", "--detach", name, "containerd")
    give_up = time.monotonic() + 60
    while True:
        try:
            engine.docker("exec", name, "ctr", "version")
            break
        except KindError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.3)
    with open(images, "rb") as content:
        engine.docker("exec", "-i", name, "ctr", "-n", "k8s.io", "images", "import",
                      "--all-platforms", "--no-unpack", "--digests", "-",
                      stdin=content)  # fmt: skip
    engine.docker("exec", name, "pkill", "-x", "containerd")
    engine.docker("commit", '--change=ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]',
                  name, tag())  # fmt: skip
    engine.docker("rm", "--force", name)
