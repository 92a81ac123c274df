"""A release on a clone of this repository, and what each check refuses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from odradek_dist import workflows
from odradek_dist.release import CHART, GREEN, NAMESPACE, Checkout, ReleaseError, install_yaml
from odradek_dist.release import release as make_release
from odradek_images.table import ROOT, version
from odradek_testkit.kubernetes.control_plane import ControlPlane

VERSION = version()


@pytest.fixture
def clone(tmp_path: Path) -> Checkout:
    """The files that a release looks at, committed, and green."""
    checkout = Checkout(tmp_path / "clone")
    for name in ("pyproject.toml", "CHANGELOG.md", ".gitignore"):
        checkout.root.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, checkout.root / name)
    shutil.copytree(ROOT / CHART, checkout.root / CHART)
    checkout.git("init", "--quiet")
    checkout.git("config", "user.name", "test")
    checkout.git("config", "user.email", "test@example.org")
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--message=all")
    be_green(checkout)
    return checkout


def be_green(checkout: Checkout) -> None:
    (checkout.root / GREEN).parent.mkdir(exist_ok=True)
    (checkout.root / GREEN).write_text(checkout.git("rev-parse", "HEAD") + "\n")


def test_a_dry_run_makes_the_files_and_a_release_also_commit_and_tag(
    clone: Checkout, tmp_path: Path, helm_program: str
) -> None:
    target = tmp_path / "dist"
    (target / "of-an-older-build").mkdir(parents=True)
    before = clone.git("rev-parse", "HEAD")
    make_release(clone, VERSION, target, dry_run=True, pure=True)
    names = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert names == {
        f"odradek-{VERSION}.tar.gz", f"odradek-{VERSION}.tgz", "install.yaml", "NOTES.md",
        "SHA256SUMS", f"pure/odradek-{VERSION}-py3-none-any.whl",
    }  # fmt: skip
    checked = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=target)
    assert checked.returncode == 0
    assert len((target / "SHA256SUMS").read_text().splitlines()) == len(names) - 1
    assert clone.git("tag") == ""
    assert clone.git("rev-parse", "HEAD") == before
    assert clone.git("status", "--porcelain") == ""

    make_release(clone, VERSION, target, pure=True)
    assert clone.git("tag") == f"v{VERSION}"
    assert clone.git("rev-parse", f"v{VERSION}^{{commit}}") == clone.git("rev-parse", "HEAD")
    assert clone.git("diff", "--name-only", before, "HEAD") == "CHANGELOG.md"
    heading = rf"^## {re.escape(VERSION)} \(\d{{4}}-\d\d-\d\d\)$"
    assert re.search(heading, (clone.root / "CHANGELOG.md").read_text(), re.M)
    with pytest.raises(ReleaseError, match=f"the tag v{VERSION} exists already"):
        make_release(clone, VERSION, target)


def change(name: str, old: str, new: str) -> Callable[[Checkout], None]:
    def apply(clone: Checkout) -> None:
        text = (clone.root / name).read_text()
        assert old in text
        (clone.root / name).write_text(text.replace(old, new))
        clone.git("commit", "--quiet", "--all", "--message=changed")
        be_green(clone)

    return apply


def untracked(clone: Checkout) -> None:
    (clone.root / "new.txt").touch()


def not_green(clone: Checkout) -> None:
    clone.git("commit", "--quiet", "--allow-empty", "--message=later")


def never_green(clone: Checkout) -> None:
    (clone.root / GREEN).unlink()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (change("pyproject.toml", f'version = "{VERSION}"', 'version = "9.9"'), "pyproject.toml"),
        (change(f"{CHART}/Chart.yaml", f"\nversion: {VERSION}", "\nversion: 9.9.9"), r"\(version"),
        (change(f"{CHART}/Chart.yaml", f"appVersion: {VERSION}", "appVersion: 9"), "appVersion"),
        (change("CHANGELOG.md", f"## {VERSION} (", "## 9.9.9 ("), "CHANGELOG.md has no section"),
        (untracked, "not committed: new.txt"),
        (not_green, "it passed for"),
        (never_green, "it has not passed here"),
    ],
)
def test_a_release_is_refused(
    clone: Checkout, tmp_path: Path, wrong: Callable[[Checkout], None], why: str
) -> None:
    wrong(clone)
    for dry_run in (True, False):
        with pytest.raises(ReleaseError, match=why):
            make_release(clone, VERSION, tmp_path / "dist", dry_run=dry_run)
    assert clone.git("tag") == ""
    assert not (tmp_path / "dist").exists()


def test_install_yaml_installs_the_operator_for_all_namespaces(kubernetes: ControlPlane) -> None:
    """As a user applies it, twice: the second time changes nothing."""
    text = install_yaml(ROOT / CHART, VERSION)
    try:
        kubernetes.kubectl("apply", "-f", "-", stdin=text)
        again = kubernetes.kubectl("apply", "-f", "-", stdin=text).splitlines()
        changed = [line for line in again if not line.endswith("unchanged")]
        # kubectl replaces the spec of a PodDisruptionBudget as a whole, also by an equal one.
        assert changed == ["poddisruptionbudget.policy/odradek configured"]
        kubernetes.kubectl("wait", "--for=condition=Established", "crd", "--all")
        deployment = yaml.safe_load(
            kubernetes.kubectl("get", f"-n={NAMESPACE}", "deployment/odradek", "-o=yaml")
        )
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"odradek/operator:{VERSION}"
        assert "--all-namespaces" in container["args"]
        account = f"--as=system:serviceaccount:{NAMESPACE}:odradek"
        may = ("auth", "can-i", "create", "statefulsets", "-n=default", account)
        assert kubernetes.kubectl(*may).strip() == "yes"
    finally:
        # Read once, so that the API server can delete the CRDs without delay (e2e/release.py).
        kubernetes.kubectl("get", "kafkaclusters,topics,sparkpipelines", "--all-namespaces")
        kubernetes.kubectl("delete", "crds", "-l=app.kubernetes.io/managed-by=kubectl")
        # No kubelet ends the operator's pods here, so the namespace would never be gone.
        kubernetes.kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=text)


@pytest.mark.long  # actionlint is built with Go, which the quick tier does not need
def test_the_workflows_are_correct_and_mistakes_are_found(tmp_path: Path) -> None:
    try:
        workflows.actionlint()
    except workflows.ActionlintMissingError as missing:
        if os.environ.get("ODRADEK_REQUIRE_TOOLS"):
            raise
        pytest.skip(str(missing))
    done = workflows.lint(ROOT)
    assert done.returncode == 0, done.stdout
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    wrong = tmp_path / ".github" / "workflows" / "check.yml"
    wrong.write_text(wrong.read_text().replace("runs-on:", "run-on:"))
    assert "run-on" in workflows.lint(tmp_path).stdout


def test_the_workflows_call_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    called = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        called |= set(re.findall(r"run: make ([a-z0-9-]+)", path.read_text()))
    assert {"check", "test", "e2e", "release"} <= called <= targets
