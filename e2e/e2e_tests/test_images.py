"""The images: what can be checked without building one."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from odradek_images import archive, build, debian
from odradek_images.requirements import LockError, needed, read_lock, requirements_of, sbom_text
from odradek_images.table import ENVIRONMENT, IMAGES, PYTHON, ROOT, USER_ID, Image

LOCK = """\
alpha==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:ab
    # via
    #   odradek (pyproject.toml)
    #   gamma
beta==2.0 ; python_version < "4" \\
    --hash=sha256:bb
    # via alpha
gamma==3.0 \\
    --hash=sha256:cc
    # via odradek (pyproject.toml)
lz4==4.0 \\
    --hash=sha256:dd
    # via alpha
"""


def test_requirements_of_a_package_are_read_from_the_lock_file() -> None:
    lock = read_lock(LOCK)
    assert lock["alpha"].asked_by == {"odradek (pyproject.toml)", "gamma"}
    assert [one.name for one in needed(lock, ["gamma"])] == ["alpha", "beta", "gamma"]
    assert [one.name for one in needed(lock, ["beta"])] == ["beta"]
    assert lock["alpha"].text == "alpha==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:ab"
    assert 'beta==2.0 ; python_version < "4"' in lock["beta"].text
    with pytest.raises(LockError, match="no delta"):
        needed(lock, ["delta"])


# pyspark needs it for Spark Connect, and names it only in an extra.
NAMED_ONLY = {"spark": {"zstandard"}}


@pytest.mark.parametrize("image", IMAGES.values(), ids=list(IMAGES))
def test_an_image_has_all_that_its_package_imports_and_nothing_else(image: Image) -> None:
    skip_without_spark(image)
    distributions = importlib.metadata.packages_distributions()
    wanted = set()
    for module in imported(image):
        # lightkube has two packages: it requires lightkube-models.
        names = {_normal(one) for one in distributions[module]}
        wanted.add(min(names, key=len))
    assert wanted | NAMED_ONLY.get(image.name, set()) == set(image.requirements)


def skip_without_spark(image: Image) -> None:
    if "pyspark" in image.requirements and not os.environ.get("ODRADEK_REQUIRE_TOOLS"):
        pytest.importorskip("pyspark", reason="pyspark is missing: make spark")


def imported(image: Image) -> set[str]:
    """Imported third-party modules, also those imported inside functions."""
    found = set()
    for path in (path for package in image.packages for path in package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    ours = {*(package.name for package in image.packages), *image.absent}
    return found - sys.stdlib_module_names - ours


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("image", IMAGES.values(), ids=list(IMAGES))
def test_the_requirements_of_installed_packages_are_there(image: Image) -> None:
    """The comments of the lock agree with the metadata of the packages."""
    skip_without_spark(image)
    packages = {one.name: one.version for one in requirements_of(image.name)}
    for name, version in packages.items():
        assert importlib.metadata.version(name) == version
        for text in importlib.metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert _normal(requirement.name) in packages, f"{name} needs {text}"


@pytest.mark.parametrize("image", IMAGES.values(), ids=list(IMAGES))
def test_the_sbom_names_every_package(image: Image) -> None:
    packages = requirements_of(image.name)
    jars = ["kafka-clients-4.3.1.jar"]
    found = json.loads(sbom_text(packages, {"libc6": "2.36-9"}, jars))["components"]
    assert len(found) == len(packages) + 2
    assert found[-2]["purl"] == "pkg:deb/debian/libc6@2.36-9"
    assert (found[-1]["name"], found[-1]["version"]) == ("kafka-clients", "4.3.1")


@pytest.mark.parametrize("image", IMAGES.values(), ids=list(IMAGES))
def test_the_dockerfile_makes_the_same_image(image: Image) -> None:
    text = build.DOCKERFILE.read_text()
    (stage,) = re.findall(rf"^FROM run(?:-java)? AS {image.name}\n((?:.+\n)+)", text, re.M)
    (shared,) = re.findall(r"^FROM scratch AS settings\n((?:.+\n)+)", text, re.M)
    assert re.findall(r"^FROM (\S+) AS (run(?:-java)?)$", text, re.M) == [
        ("settings", "run"),
        ("settings", "run-java"),
    ]
    assert f"ENTRYPOINT {json.dumps(image.entrypoint)}" in stage
    for package in image.packages:
        where = package.relative_to(ROOT)
        if image.compiler is not None:
            assert f"python {image.compiler.relative_to(ROOT)}" in text
            assert f"COPY {where} {where}" in text
            assert f"cp -r build/compiled-*/{package.name} /opt/odradek/{package.name}" in text
        else:
            assert f"COPY {where} /opt/odradek/{package.name}" in text
    for name, value in image.labels.items():
        said_value = "${VERSION}" if name.endswith(".version") else value
        label = rf'{re.escape(name)}="?{re.escape(said_value)}"?( \\|$)'
        assert re.search(label, shared + stage, re.M), name
    assert (f"CMD {json.dumps(list(image.arguments))}" in stage) == bool(image.arguments)
    assert (f"VOLUME {image.data}" in stage) == bool(image.data)
    for path in image.files:
        assert f"COPY {path.relative_to(ROOT)} /opt/odradek/{image.package}/" in text
    assert f"USER {USER_ID}:{USER_ID}" in shared
    for name, value in ENVIRONMENT.items():
        assert name == "PATH" or f"{name}={value}" in shared, name  # Docker sets the path itself
    said = build.config(image)
    assert said["User"] == f"{USER_ID}:{USER_ID}"
    assert said["Entrypoint"] == image.entrypoint


def test_the_dockerfile_is_pinned_to_the_python_of_debian() -> None:
    assert re.fullmatch(rf"python:{re.escape(PYTHON)}\.\d+-slim-bookworm", build.base_image())


def test_a_change_of_the_code_or_the_lock_is_another_image(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    image = Image("broker", tmp_path, "m", ())
    packages = requirements_of("broker")
    before = build.content_key(image, packages)
    assert build.content_key(image, packages) == before
    assert build.content_key(image, packages[1:]) != before
    (tmp_path / "a.py").write_text("x = 2\n")
    assert build.content_key(image, packages) != before


# -- archives --------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "su").write_bytes(b"become somebody\n")
    (root / "bin" / "su").chmod(0o4755)
    (root / "bin" / "sh").symlink_to("su")
    (root / "bin" / "again").hardlink_to(root / "bin" / "su")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    return root


def test_a_layer_belongs_to_root_and_has_no_setuid_bits(tree: Path, tmp_path: Path) -> None:
    layer = archive.write_layer(tmp_path / "layer.tar", tree, "opt/x", when=0)
    with tarfile.open(layer.path) as tar:
        members = {info.name: info for info in tar}
        assert list(members) == [
            "opt", "opt/x", "opt/x/bin", "opt/x/bin/again", "opt/x/bin/sh", "opt/x/bin/su",
            "opt/x/tmp",
        ]  # fmt: skip
        assert {(i.uid, i.gid, i.uname, i.mtime) for i in tar} == {(0, 0, "root", 0)}
        assert oct(members["opt/x/bin/again"].mode) == "0o755"
        assert oct(members["opt/x/tmp"].mode) == "0o1777"
        assert members["opt/x/bin/su"].linkname == "opt/x/bin/again"
        assert members["opt/x/bin/sh"].linkname == "su"
        content = tar.extractfile("opt/x/bin/su")
        assert content is not None
        assert content.read() == b"become somebody\n"


def test_a_volume_belongs_to_the_user_of_the_image(tmp_path: Path) -> None:
    layer = archive.write_directory(tmp_path / "layer.tar", "var/lib/data", USER_ID)
    with tarfile.open(layer.path) as tar:
        owners = {info.name: (info.uid, info.gid, oct(info.mode)) for info in tar}
    assert owners["var"] == owners["var/lib"] == (0, 0, "0o755")
    assert owners["var/lib/data"] == (USER_ID, USER_ID, "0o755")


def test_the_same_files_give_the_same_image(tree: Path, tmp_path: Path) -> None:
    digests = []
    for name in ("one", "two"):
        layer = archive.write_layer(tmp_path / f"{name}.layer", tree, when=0)
        archive.write_archive(tmp_path / name, [archive.Built("a:1", [layer])])
        digests.append(archive.sha256_of(tmp_path / name))
        (tree / "bin" / "su").touch()
    assert digests[0] == digests[1]


def test_an_archive_says_what_is_in_it(tree: Path, tmp_path: Path) -> None:
    base = archive.write_layer(tmp_path / "base", tree)
    ours = archive.write_layer(tmp_path / "ours", tree, "opt", when=0)
    images = [
        archive.Built(f"odradek/{name}:1", [base, ours], {"User": "10001:10001"}) for name in "ab"
    ]
    archive.write_archive(tmp_path / "archive.tar", images)
    with tarfile.open(tmp_path / "archive.tar") as tar:
        opened = {info.name: tar.extractfile(info) for info in tar}
        read = {name: content.read() for name, content in opened.items() if content is not None}
    manifest = json.loads(read["manifest.json"])
    assert [one["RepoTags"] for one in manifest] == [["odradek/a:1"], ["odradek/b:1"]]
    assert manifest[0]["Layers"] == [f"{base.digest}/layer.tar", f"{ours.digest}/layer.tar"]
    assert len(read) == 4  # both images are the same: one configuration, two layers, the manifest
    config = json.loads(read[manifest[0]["Config"]])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{base.digest}", f"sha256:{ours.digest}"]
    assert config["config"] == {"User": "10001:10001"}
    assert read[manifest[0]["Layers"][1]] == ours.path.read_bytes()


# -- Debian ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Types: deb\nURIs: http://a.example/debian\nSuites: bookworm\n", "http://a.example/debian"),
        ("# deb http://no\ndeb [arch=amd64] http://b.example/debian bookworm main\n",
         "http://b.example/debian"),
        ("deb http://c.example/debian-security x main\ndeb http://c.example/debian x main\n",
         "http://c.example/debian"),
    ],
)  # fmt: skip
def test_the_mirror_is_the_one_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
    assert debian.mirror([text]) == expected
    with pytest.raises(debian.DebianError, match="DEBIAN_MIRROR"):
        debian.mirror([""])
    monkeypatch.setenv("DEBIAN_MIRROR", "http://own")
    assert debian.mirror([text]) == "http://own"


def test_files_that_a_container_does_not_need_are_removed(tmp_path: Path) -> None:
    for name in ("usr/share/doc/x/copyright", "etc/apt/sources.list", "usr/bin/python3",
                 "var/lib/apt/lists/a", "dev/null"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    debian.prune(tmp_path)
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {"usr/bin/python3"}
    assert (tmp_path / "tmp").stat().st_mode & 0o7777 == 0o1777


def test_a_removed_package_leaves_neither_files_nor_its_entry(tmp_path: Path) -> None:
    """Debian's /lib is a link to usr/lib, and every package lists it."""
    for name in ("usr/lib/a.so", "usr/bin/perl", "var/lib/dpkg/status"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    ok = "Status: install ok installed"
    status = f"Package: perl\n{ok}\nVersion: 1\n\nPackage: sed\n{ok}\nVersion: 2\n"
    (tmp_path / "var/lib/dpkg/status").write_text(status)
    (tmp_path / "lib").symlink_to("usr/lib")
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir()
    (info / "perl:amd64.list").write_text("/.\n/lib\n/usr/bin\n/usr/bin/perl\n/usr/gone\n")
    debian.remove_packages(tmp_path, ["perl"])
    assert not (tmp_path / "usr/bin/perl").exists()
    assert (tmp_path / "lib/a.so").exists()
    assert debian.installed(tmp_path) == {"sed": "2"}


def test_debian_packages_are_read_from_dpkg(tmp_path: Path) -> None:
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
    )
    assert debian.installed(tmp_path) == {"libc6": "2.36-9"}


def test_only_the_newest_archives_of_an_image_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    directory = build.cache_dir()
    directory.mkdir(parents=True)
    for age, name in enumerate(("broker-4", "broker-3", "broker-2", "broker-1", "spark-1")):
        path = directory / f"{name}.tar"
        path.touch()
        os.utime(path, (1000 - age, 1000 - age))
    build.forget_older(IMAGES["broker"])
    left = sorted(path.stem for path in directory.iterdir())
    assert left == ["broker-2", "broker-3", "broker-4", "spark-1"]
