"""Kubernetes' own programs, downloaded or built from their Go modules once per machine.

    python -m odradek_testkit.kubernetes.programs kube-apiserver etcd

gets the missing ones and prints their paths, from the first of these that has them:
- the directory KUBEBUILDER_ASSETS, which setup-envtest fills (etcd, kube-apiserver, kubectl);
- the binaries of the Kubernetes release, each checked against its published SHA-256;
- their Go modules. This needs Go and its module proxy, and neither an image registry nor a download
  site. On two idle cores: etcd 1.5 min, kube-apiserver 4 to 6 min, kube-controller-manager 1 min,
  the others less, because they share the build cache.
ODRADEK_KUBERNETES_RELEASES is another address for the release; empty: do not download.

The programs go to `$XDG_CACHE_HOME/odradek/kubernetes-<version>/`; what Go downloads and compiles
goes where Go always puts it.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from odradek_testkit.caching import cache_home

KUBERNETES = "v1.34.3"
ETCD = "v3.6.5"
COREDNS = "v1.13.1"  # kubeadm 1.34 asks for 1.12.1, which does not compile with client-go 0.34
PAUSE = "3.10.1"
LOCAL_PATH = "v0.0.30"
KIND = "v0.30.0"
HELM = "v3.19.0"
SPARK_OPERATOR_MODULE = "github.com/kubeflow/spark-operator/v2"
SPARK_OPERATOR = "v2.3.0"  # kubeflow's; later versions are not served as Go modules
CERT_MANAGER_MODULE = "github.com/cert-manager/cert-manager"
CERT_MANAGER = "v1.19.4"  # the one with the client-go of this Kubernetes, so the build is short

# Where Kubernetes publishes its releases. It has neither etcd nor Helm.
RELEASES = "https://dl.k8s.io/release"
RELEASES_VARIABLE = "ODRADEK_KUBERNETES_RELEASES"
CONNECT_S = 10.0  # a machine that cannot reach the release builds instead, after this time

FLAGS = ("-mod=mod", "-trimpath", "-buildvcs=false")


class ProgramsMissingError(Exception):
    """A program is missing and cannot be built; the text says what to install."""


@dataclass(frozen=True)
class Source:
    """Where a program comes from: a Go package, or the Go text of a `main`."""

    module: str  # empty: `main` needs none
    version: str
    package: str = ""
    main: str = ""
    with_modules: tuple[str, ...] = ()  # "module version": required in this version
    version_variables: tuple[str, ...] = ()  # set to `version` by the linker


def _published(kubernetes: str) -> str:
    """The version of the staging modules: v1.34.3 → v0.34.3."""
    return "v0." + kubernetes.removeprefix("v1.")


def _kubernetes(command: str) -> Source:
    variables = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return Source(
        "k8s.io/kubernetes",
        KUBERNETES,
        f"k8s.io/kubernetes/cmd/{command}",
        version_variables=tuple(f"{name}.gitVersion" for name in variables),
    )


# The versions of Kubernetes, so that the build cache is shared.
CLIENT_MODULES = tuple(
    f"k8s.io/{name} {_published(KUBERNETES)}" for name in ("api", "apimachinery", "client-go")
)

# The plugins of kubeadm's Corefile, and some for debugging. All plugins would pull in the libraries
# of three clouds.
COREDNS_PLUGINS = (
    "bind", "cache", "cancel", "debug", "errors", "forward", "health", "hosts", "kubernetes",
    "loadbalance", "log", "loop", "metrics", "ready", "reload", "whoami",
)  # fmt: skip

# Holds a pod's namespaces while its containers come and go, and reaps orphaned processes.
PAUSE_MAIN = """
import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	for got := range signals {
		if got != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
"""

# The command of cert-manager is in a module of its own, which is not served; its controllers are in
# packages of the main one. These are the controllers of Certificates and of issuers without ACME.
CERT_MANAGER_PACKAGES = (
    "controller/certificaterequests/approver", "controller/certificaterequests/ca",
    "controller/certificaterequests/selfsigned", "controller/certificates/issuing",
    "controller/certificates/keymanager", "controller/certificates/readiness",
    "controller/certificates/requestmanager", "controller/certificates/revisionmanager",
    "controller/certificates/trigger", "controller/clusterissuers", "controller/issuers",
    "issuer/ca", "issuer/selfsigned",
)  # fmt: skip
# cert-manager KUBECONFIG NAMESPACE: secrets of ClusterIssuers are in this namespace.
CERT_MANAGER_MAIN = (
    "import (\n"
    + "".join(f'\t_ "{CERT_MANAGER_MODULE}/pkg/{name}"\n' for name in CERT_MANAGER_PACKAGES)
    + f"""
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"{CERT_MANAGER_MODULE}/pkg/controller"
)"""
    + """

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	options := controller.ContextOptions{Kubeconfig: os.Args[1]}
	options.ClusterResourceNamespace = os.Args[2]
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		log.Fatal(err)
	}
	shared, err := factory.Build()
	if err != nil {
		log.Fatal(err)
	}
	for name, construct := range controller.Known() {
		one, err := construct(factory)
		if err != nil {
			log.Fatalf("%s: %s", name, err)
		}
		go func() {
			if err := one.Run(2, ctx); err != nil {
				log.Fatalf("%s: %s", name, err)
			}
		}()
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	<-ctx.Done()
}
"""
)

SOURCES = {
    "etcd": Source(
        "go.etcd.io/etcd/server/v3",
        ETCD,
        # The module with etcd's own main cannot be required by others (local replaces).
        main='import ("os"; "go.etcd.io/etcd/server/v3/etcdmain")\n'
        "func main() { etcdmain.Main(os.Args) }\n",
    ),
    "kube-apiserver": _kubernetes("kube-apiserver"),
    "kube-controller-manager": _kubernetes("kube-controller-manager"),
    "kube-scheduler": _kubernetes("kube-scheduler"),
    "kubectl": _kubernetes("kubectl"),
    "kubelet": _kubernetes("kubelet"),
    "kubeadm": _kubernetes("kubeadm"),
    "kube-proxy": _kubernetes("kube-proxy"),
    "coredns": Source(
        "github.com/coredns/coredns",
        COREDNS,
        main="import (\n"
        + "".join(f'_ "github.com/coredns/coredns/plugin/{name}"\n' for name in COREDNS_PLUGINS)
        + '"github.com/coredns/coredns/coremain"\n)\nfunc main() { coremain.Run() }\n',
        with_modules=CLIENT_MODULES,
    ),
    "local-path-provisioner": Source(
        "github.com/rancher/local-path-provisioner",
        LOCAL_PATH,
        "github.com/rancher/local-path-provisioner",
        version_variables=("main.VERSION",),
    ),
    "pause": Source("", PAUSE, main=PAUSE_MAIN),
    "kind": Source("sigs.k8s.io/kind", KIND, "sigs.k8s.io/kind"),
    "helm": Source(
        "helm.sh/helm/v3",
        HELM,
        "helm.sh/helm/v3/cmd/helm",
        version_variables=("helm.sh/helm/v3/internal/version.version",),
    ),
    "spark-operator": Source(
        SPARK_OPERATOR_MODULE, SPARK_OPERATOR, f"{SPARK_OPERATOR_MODULE}/cmd/operator"
    ),
    "cert-manager": Source(
        CERT_MANAGER_MODULE,
        CERT_MANAGER,
        main=CERT_MANAGER_MAIN,
        with_modules=CLIENT_MODULES,
    ),
}


def cache_dir() -> Path:
    return cache_home() / f"kubernetes-{KUBERNETES}"


def find_program(name: str) -> Path | None:
    """The path of a program, if this machine has it."""
    given = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent")
    return next((path for path in (cache_dir() / name, given / name) if path.exists()), None)


def program(name: str) -> Path:
    """The path of a program; gets it if this machine does not have it yet."""
    if found := find_program(name):
        return found
    target = cache_dir() / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "build.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists() and not _download(name, SOURCES[name], target):
            if shutil.which("go") is None:
                raise ProgramsMissingError(
                    f"{name} cannot be downloaded here; it is built from Go modules, and Go is "
                    "missing: install Go 1.24 or newer, or name a directory in KUBEBUILDER_ASSETS"
                )
            _build(name, SOURCES[name], target)
    return target


def _download(name: str, source: Source, target: Path) -> bool:
    """Whether the program of the release is now at `target`."""
    releases = os.environ.get(RELEASES_VARIABLE, RELEASES)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
    if source.module != "k8s.io/kubernetes" or not releases or machine is None:
        return False
    address = f"{releases}/{source.version}/bin/linux/{machine}/{name}"
    partial = target.with_name(f"{name}.partial")
    began, digest = time.monotonic(), hashlib.sha256()
    try:
        with urllib.request.urlopen(f"{address}.sha256", timeout=CONNECT_S) as answer:
            wanted = answer.read(100).decode().split()[0]
        with (
            urllib.request.urlopen(address, timeout=CONNECT_S) as answer,
            partial.open("wb") as out,
        ):
            print(f"Downloading {name} {source.version}, once …", file=sys.stderr)
            while chunk := answer.read(1 << 20):
                digest.update(chunk)
                out.write(chunk)
    except (OSError, ValueError, IndexError) as error:
        print(f"{name} cannot be downloaded: {error}", file=sys.stderr)
        return False
    if digest.hexdigest() != wanted:
        partial.unlink()
        raise ProgramsMissingError(f"{address} does not match its published SHA-256")
    partial.chmod(0o755)
    partial.rename(target)
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return True


def _build(name: str, source: Source, target: Path) -> None:
    print(f"Building {name} {source.version} from its Go module, once …", file=sys.stderr)
    began = time.monotonic()
    work = target.parent / "build" / (source.module.replace("/", "_") or name)
    work.mkdir(parents=True, exist_ok=True)
    (work / "go.mod").write_text(_go_mod(work, source) if source.module else "module build\n")
    if source.main:
        (work / "main.go").write_text(f"package main\n{source.main}")
    else:
        # All commands of a module share one file, so that they get the same versions.
        packages = sorted(s.package for s in SOURCES.values() if s.module == source.module)
        imports = "".join(f'import _ "{package}"\n' for package in packages)
        (work / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{imports}")
    _go(work, "mod", "tidy", "-e")
    variables = [f"-X {name}={source.version}" for name in source.version_variables]
    partial = target.with_name(f"{name}.partial")
    _go(
        work,
        "build",
        *FLAGS,
        "-ldflags",
        " ".join(["-s", "-w", *variables]),
        "-o",
        str(partial),
        source.package or ".",
    )
    partial.rename(target)
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)


def module_dir(module: str, version: str) -> Path:
    """The directory of a module's files; Go downloads it if needed."""
    return Path(_downloaded(cache_dir(), module, version)["Dir"])


def _downloaded(work: Path, module: str, version: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(_go(work, "mod", "download", "-json", f"{module}@{version}"))
    return found


def _go_mod(work: Path, source: Source) -> str:
    """A module that requires the source, with the source's replacements, which Go would ignore.

    Kubernetes replaces its staging modules by local paths; they are published as v0.x as well.
    """
    original = _downloaded(work, source.module, source.version)["GoMod"]
    described = json.loads(_go(work, "mod", "edit", "-json", original))
    lines = ["module build", f"go {described['Go']}"]
    lines += [f"godebug {one['Key']}={one['Value']}" for one in described.get("Godebug") or []]
    lines.append(f"require {source.module} {source.version}")
    lines += [f"require {one}" for one in source.with_modules]
    published = _published(source.version)
    for replace in described.get("Replace") or []:
        old, new = replace["Old"], replace["New"]
        if new.get("Version"):
            left = " ".join(filter(None, (old["Path"], old.get("Version"))))
            lines.append(f"replace {left} => {new['Path']} {new['Version']}")
        elif new["Path"].startswith("./staging/"):
            lines.append(f"replace {old['Path']} => {old['Path']} {published}")
    return "\n".join(lines) + "\n"


def _go(work: Path, *args: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-modcacherw"}
    done = subprocess.run(
        ["nice", "-n", "10", "go", *args],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ProgramsMissingError(f"go {' '.join(args)} failed:\n{done.stderr}")
    return done.stdout


def main() -> None:
    for name in sys.argv[1:]:
        if name not in SOURCES:
            sys.exit(f"no program {name}; there are {', '.join(SOURCES)}")
        try:
            print(program(name))
        except ProgramsMissingError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
