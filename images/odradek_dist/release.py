"""A release: `make release VERSION=0.2.0`, with DRY_RUN=1 everything but the commit and the tag.

1. Checks: VERSION is the one in pyproject.toml and in the chart, CHANGELOG.md has a section for
   it, no such tag exists, the tree has no changes, and `.ci/run` has passed for this commit (it
   writes build/green).
2. The section "## 0.2.0 (unreleased)" gets today's date, in a commit of its own.
3. Files in dist/: wheels and source package, the packaged chart, install.yaml, SHA256SUMS.
4. The tag v0.2.0. Nothing is pushed: `git push --follow-tags` starts the release workflow.

`--files` makes only the files of a commit that has the tag already; the workflow calls it.
"""

import argparse
import datetime
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import yaml

from odradek_dist import wheel
from odradek_e2e.chart import HelmError, helm
from odradek_images.archive import sha256_of
from odradek_images.compiled import CompileError
from odradek_images.table import ROOT
from odradek_testkit.kubernetes.programs import KUBERNETES, ProgramsMissingError

CHART = "charts/odradek"
GREEN = "build/green"
NAMESPACE = "odradek-system"  # of install.yaml
INSTALL_HEADER = """\
# Odradek {version}: the operator for all namespaces, and the CRDs. Rendered from the Helm chart.
#   kubectl apply -f install.yaml
apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
"""


class ReleaseError(Exception):
    """Why there is no release; one sentence."""


class Checkout:
    """The repository that is released: the one that this program was started from."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def git(self, *command: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.root), *command], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ReleaseError(f"git {command[0]} failed: {done.stderr.strip()}")
        return done.stdout.strip()

    def check_version(self, version: str) -> None:
        """The version is in pyproject.toml. The chart repeats it: Helm reads only Chart.yaml."""
        project = tomllib.loads((self.root / "pyproject.toml").read_text())["project"]
        chart = yaml.safe_load((self.root / CHART / "Chart.yaml").read_text())
        found = {
            "pyproject.toml": project["version"],
            f"{CHART}/Chart.yaml (version)": chart["version"],
            f"{CHART}/Chart.yaml (appVersion)": chart["appVersion"],
        }
        for place, said in found.items():
            if said != version:
                raise ReleaseError(f"{place} says {said}, not {version}")

    def check_changelog(self, version: str) -> None:
        if self.section(version) is None:
            raise ReleaseError(f'CHANGELOG.md has no section "## {version} (unreleased)"')

    def section(self, version: str) -> str | None:
        """The text of its section in CHANGELOG.md, without the heading."""
        text = (self.root / "CHANGELOG.md").read_text()
        found = re.search(
            rf"^## {re.escape(version)} \((?:unreleased|\d{{4}}-\d\d-\d\d)\)\n(.+?)(?=^## |\Z)",
            text, re.M | re.S,
        )  # fmt: skip
        return found[1].strip() if found else None

    def check_tree(self) -> None:
        if changed := self.git("status", "--porcelain"):
            first = changed.splitlines()[0][3:]
            raise ReleaseError(f"the tree has changes that are not committed: {first}, …")

    def check_tag(self, version: str) -> None:
        if self.git("tag", "--list", f"v{version}"):
            raise ReleaseError(f"the tag v{version} exists already")

    def check_green(self) -> None:
        green = self.root / GREEN
        commit = self.git("rev-parse", "HEAD")
        passed = green.read_text().strip() if green.exists() else ""
        if passed != commit:
            said = f"it passed for {passed[:12]}" if passed else "it has not passed here"
            raise ReleaseError(f".ci/run has to pass for {commit[:12]} first: {said}")

    def set_date(self, version: str) -> None:
        path = self.root / "CHANGELOG.md"
        text = path.read_text()
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        dated = text.replace(f"## {version} (unreleased)", f"## {version} ({today})")
        if dated != text:
            path.write_text(dated)
            self.git("commit", "--quiet", "--message", f"Release {version}", "CHANGELOG.md")


def make_files(checkout: Checkout, version: str, target: Path, *, pure: bool = False) -> None:
    """Fills `target`, which holds nothing else afterwards."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    wheel.build(target, compiled=not pure)
    helm("package", str(checkout.root / CHART), f"--destination={target}")
    (target / "install.yaml").write_text(install_yaml(checkout.root / CHART, version))
    (target / "NOTES.md").write_text(f"{checkout.section(version)}\n")
    (target / "SHA256SUMS").write_text(checksums(target))


def install_yaml(chart: Path, version: str) -> str:
    """The chart with the operator for all namespaces; the test pod of `helm test` is left out."""
    rendered = helm(
        "template", "odradek", str(chart), f"--namespace={NAMESPACE}", "--skip-tests", "--no-hooks",
        f"--kube-version={KUBERNETES}", "--set=watch.scope=Cluster",
    )  # fmt: skip
    plain = rendered.replace(
        "app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl"
    )
    return INSTALL_HEADER.format(version=version, namespace=NAMESPACE) + plain


def checksums(directory: Path) -> str:
    """For `sha256sum --check`."""
    return "".join(
        f"{sha256_of(path)}  {path.relative_to(directory)}\n"
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    )


def release(
    checkout: Checkout, version: str, target: Path, *, dry_run: bool = False, pure: bool = False
) -> None:
    checkout.check_version(version)
    checkout.check_changelog(version)
    checkout.check_tag(version)
    checkout.check_tree()
    checkout.check_green()
    if not dry_run:
        checkout.set_date(version)
    make_files(checkout, version, target, pure=pure)
    if not dry_run:
        checkout.git("tag", "--annotate", f"v{version}", "--message", f"Odradek {version}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="odradek_dist.release", description="Makes a release")
    parser.add_argument("version", help="for example 0.2.0")
    parser.add_argument("--dry-run", action="store_true", help="no commit and no tag")
    parser.add_argument("--files", action="store_true", help="the files of a tagged commit only")
    parser.add_argument("--pure", action="store_true", help="without the compiled wheel")
    parser.add_argument("--to", type=Path, default=wheel.DIST, help="default: dist")
    given = parser.parse_args(arguments)
    checkout = Checkout(ROOT)
    try:
        if given.files:
            checkout.check_version(given.version)
            checkout.check_changelog(given.version)
            make_files(checkout, given.version, given.to, pure=given.pure)
        else:
            release(checkout, given.version, given.to, dry_run=given.dry_run, pure=given.pure)
    except (ReleaseError, wheel.DistError, CompileError, HelmError, ProgramsMissingError) as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    for path in sorted(path for path in given.to.rglob("*") if path.is_file()):
        print(path)
    if not (given.files or given.dry_run):
        print(f"Tagged v{given.version}. Publish it: git push --follow-tags", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
