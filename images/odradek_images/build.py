"""Builds our images: `make images`, or `python -m odradek_images.build [broker] [operator]`.

With images/Dockerfile where a container engine runs and reaches a registry; otherwise the same
images are assembled from Debian's packages and wheels, without an engine. `--with docker` and
`--with debian` force the choice. Either way the result is an archive that `kind load
image-archive`, `docker load` and `ctr images import` take; its path is the last line for each
image.

Images are kept in `$XDG_CACHE_HOME/odradek/images` by a hash of their inputs and reused; `--fresh`
rebuilds them, for Debian's security updates.
"""

import argparse
import compileall
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from py_compile import PycInvalidationMode

from odradek_images import archive, debian
from odradek_images.compiled import MADE_OF, CompileError, compiled_modules, made_of
from odradek_images.requirements import (
    Locked,
    LockError,
    requirements_of,
    requirements_text,
    sbom_text,
)
from odradek_images.table import (
    BASES,
    ENVIRONMENT,
    HOME,
    IMAGES,
    PYTHON,
    ROOT,
    SUITE,
    USER_ID,
    Image,
)

DOCKERFILE = ROOT / "images" / "Dockerfile"
RECIPE = "3"  # increase it to rebuild images after a change of this file
SOURCE_SUFFIXES = (".py", ".json", ".sha256", ".html", ".css", ".js", ".svg")
KEPT = 3  # archives of each image in the cache
MB = 1_000_000


class BuildError(Exception):
    """An image cannot be built; the text says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="images.build", description="Builds our images")
    parser.add_argument("images", nargs="*", choices=[*IMAGES, []], help="left out: all")
    parser.add_argument("--with", dest="way", choices=("auto", "docker", "debian"), default="auto")
    parser.add_argument("--fresh", action="store_true", help="do not use the cache")
    given = parser.parse_args(arguments)
    try:
        for name in given.images or IMAGES:
            print(build(IMAGES[name], given.way, fresh=given.fresh))
    except (BuildError, CompileError, LockError, debian.DebianError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def build(image: Image, way: str = "auto", *, fresh: bool = False) -> Path:
    """Builds an image, tagged with the version of the package; returns its archive."""
    if way == "docker" or (way == "auto" and docker_can_build()):
        return build_with_docker(image)
    return assemble(image, fresh=fresh)


def tag_of(image: Image) -> str:
    return f"{image.repository}:{image.tag()}"


def cache_dir() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "odradek" / "images"


# -- with a registry -------------------------------------------------------------------------------


def base_image() -> str:
    """The one that the Dockerfile begins with."""
    first = next(
        line for line in DOCKERFILE.read_text().splitlines() if line.startswith("ARG BASE=")
    )
    return first.removeprefix("ARG BASE=").strip()


def docker_can_build() -> bool:
    if shutil.which("docker") is None:
        return False
    for command in (["version"], ["pull", "--quiet", base_image()]):
        done = subprocess.run(["docker", *command], capture_output=True, check=False)
        if done.returncode != 0:
            return False
    return True


def build_with_docker(image: Image) -> Path:
    target = cache_dir() / f"{image.name}-{image.tag()}-docker.tar"
    target.parent.mkdir(parents=True, exist_ok=True)
    with progress(f"{tag_of(image)} with docker"):
        _run("docker", "build", f"--file={DOCKERFILE}", f"--target={image.name}",
             f"--tag={tag_of(image)}", f"--build-arg=VERSION={image.tag()}",
             *_jars_context(image), str(ROOT),
             environment={"DOCKER_BUILDKIT": "1"})  # fmt: skip
        _run("docker", "save", f"--output={target}", tag_of(image))
    return target


def _jars_context(image: Image) -> list[str]:
    return [f"--build-context=jars={image.jars()}"] if image.jars else []


# -- without one -----------------------------------------------------------------------------------


def assemble(image: Image, *, fresh: bool = False) -> Path:
    packages = requirements_of(image.name)
    target = cache_dir() / f"{image.name}-{image.tag()}-{content_key(image, packages)}.tar"
    if target.exists() and not fresh:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    base = base_layer(image.base, fresh=fresh)
    staging = target.with_suffix(".staging")
    shutil.rmtree(staging, ignore_errors=True)
    with progress(f"{image.name}: {len(packages)} packages"):
        install(image, packages, staging, debian.installed(base_tree(image.base)))
    with progress(f"{image.name}: does it start?"):
        check_start(image, staging)
    with progress(f"{image.name}: archive"):
        layer_file = target.with_suffix(".layer")
        layers = [base, archive.write_layer(layer_file, staging, HOME.strip("/"), when=0)]
        if image.user_name:
            layers.append(user_layer(image, target.with_suffix(".user")))
        if image.data:
            data = target.with_suffix(".data")
            layers.append(archive.write_directory(data, image.data.strip("/"), USER_ID))
        archive.write_archive(target, [archive.Built(tag_of(image), layers, config(image))])
    shutil.rmtree(staging)
    unpacked, packed = target.stat().st_size, archive.compressed_bytes(layers)
    say(f"{tag_of(image)}: {unpacked / MB:.0f} MB on disk, {packed / MB:.0f} MB compressed")
    for layer in layers[1:]:
        layer.path.unlink()
    forget_older(image)
    return target


def forget_older(image: Image) -> None:
    """Deletes old archives: a day of changes makes gigabytes. The newest few may be in use."""
    made = cache_dir().glob(f"{image.name}-*.tar")
    for old in sorted(made, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        old.unlink()


def user_layer(image: Image, target: Path) -> archive.Layer:
    """/etc/passwd of the base, with a line for the user that the image runs as."""
    known = (base_tree(image.base) / "etc" / "passwd").read_text()
    line = f"{image.user_name}:x:{USER_ID}:{USER_ID}::/tmp:/usr/sbin/nologin\n"
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        passwd = Path(directory) / "passwd"
        passwd.write_text(known + line)
        return archive.write_layer(target, Path(directory), "etc", when=0)


def config(image: Image) -> dict[str, object]:
    """The configuration that the Dockerfile sets."""
    return {
        "User": f"{USER_ID}:{USER_ID}",
        "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
        "WorkingDir": image.work_dir,
        "Entrypoint": image.entrypoint,
        "Cmd": list(image.arguments),
        "Volumes": {image.data: {}} if image.data else {},
        "ExposedPorts": {f"{port}/tcp": {} for port in image.ports},
        "StopSignal": "SIGTERM",
        "Labels": image.labels,
    }


def content_key(image: Image, packages: Sequence[Locked]) -> str:
    """A hash of an image's inputs except for Debian's packages."""
    digest = hashlib.sha256(f"{RECIPE}\n{base_key(image.base)}\n{config(image)}\n".encode())
    digest.update(requirements_text(packages).encode())
    digest.update(f"{image.from_source}{image.left_out}{image.user_name}".encode())
    for name, path in (sources(image) | extensions(image)).items():
        digest.update(f"{name}\0".encode())
        digest.update(path.read_bytes())
    for name in jar_names(image):
        digest.update(f"{name}\0".encode())
    return digest.hexdigest()[:12]


def jar_names(image: Image) -> list[str]:
    """File names of the jars, which contain their versions."""
    return sorted(path.name for path in image.jars().iterdir()) if image.jars else []


def sources(image: Image) -> dict[str, Path]:
    """Below /opt/odradek → here: {"odradek_broker/main.py": …}."""
    return {
        path.relative_to(package.parent).as_posix(): path
        for package in image.packages
        for path in sorted(package.rglob("*"))
        if path.suffix in SOURCE_SUFFIXES
    } | {f"{image.package}/{path.name}": path for path in image.files}


@cache
def extensions(image: Image) -> dict[str, Path]:
    """Modules that were compiled to C, as in `sources`; Python prefers them to the sources."""
    if image.compiler is None:
        return {}
    if sys.version_info[:2] != tuple(map(int, PYTHON.split("."))):
        say(f"{image.name}: not compiled, at half of its speed: that takes Python {PYTHON}")
        return {}
    with progress(f"{image.name}: compiling (two minutes, unless cached)"):
        return compiled_modules(image.compiler)


def base_key(base: str) -> str:
    unwanted = (debian.UNWANTED, debian.UNWANTED_PATTERNS, debian.UNWANTED_PACKAGES)
    recipe = (SUITE, BASES[base], unwanted, debian.EMPTY)
    return hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]


def base_tree(base: str) -> Path:
    return cache_dir() / f"debian-{SUITE}-{base_key(base)}"


def base_layer(base: str, *, fresh: bool = False) -> archive.Layer:
    """One layer for all images of a base, so that they share most of their bytes."""
    tree = base_tree(base)
    tree.parent.mkdir(parents=True, exist_ok=True)
    layer = tree.with_suffix(".tar")
    if fresh:
        shutil.rmtree(tree, ignore_errors=True)
    if not tree.exists():
        layer.unlink(missing_ok=True)
        with progress("Debian's packages (about a minute)"):
            debian.make_base(tree, BASES[base])
    if layer.exists():
        return archive.Layer(layer, archive.sha256_of(layer))
    partial = layer.with_suffix(".partial")
    made = archive.write_layer(partial, tree)
    partial.rename(layer)
    return archive.Layer(layer, made.digest)


def install(
    image: Image, packages: Sequence[Locked], target: Path, debian_packages: dict[str, str]
) -> None:
    """Fills /opt/odradek with wheels (pyspark has none), each checked against its hash."""
    target.mkdir(parents=True)
    if packages:
        listed = target.with_suffix(".requirements")
        listed.write_text(requirements_text(packages))
        _run(uv(), "pip", "install", "--quiet", "--no-deps", "--require-hashes",
             "--only-binary=:all:", *(f"--no-binary={one}" for one in image.from_source),
             f"--python-version={PYTHON}", f"--target={target}",
             f"--requirements={listed}")  # fmt: skip
        listed.unlink()
    if image.jars:
        shutil.copytree(image.jars(), target / "jars")
    for unwanted in (target / name for name in ("bin", ".lock", *image.left_out)):
        if unwanted.is_dir():
            shutil.rmtree(unwanted)
        else:
            unwanted.unlink(missing_ok=True)
    for name, path in (sources(image) | extensions(image)).items():
        copied = target / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)
    if compiled := extensions(image):
        (target / MADE_OF).write_text(made_of(compiled, sources(image)))
    (target / "sbom.json").write_text(sbom_text(packages, debian_packages, jar_names(image)))
    compile_all(target)


def compile_all(target: Path) -> None:
    """Compiles with hashes instead of times: in the archive all file times are 0."""
    if sys.version_info[:2] != tuple(map(int, PYTHON.split("."))):
        say(f"not compiled: that takes Python {PYTHON}; the images start a second later")
        return
    for cached in target.rglob("__pycache__"):
        shutil.rmtree(cached)
    compileall.compile_dir(
        target, quiet=2, stripdir=str(target), prependdir=HOME,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )  # fmt: skip


def check_start(image: Image, staging: Path) -> None:
    """Runs the program's `--help` in the new root as its user; nothing is written."""
    root = base_tree(image.base)
    environment = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    inside = ["chroot", f"--userspec={USER_ID}:{USER_ID}", str(root), "/usr/bin/env", "-i",
              *environment, *image.entrypoint, "--help"]  # fmt: skip
    script = 'mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && shift 2 && exec "$@"'
    _run("unshare", "--mount", "sh", "-c", script, "sh", str(staging),
         str(root / HOME.strip("/")), *inside)  # fmt: skip


# -- helpers ---------------------------------------------------------------------------------------


def uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise BuildError("uv is missing: make setup installs it")
    return found


def _run(*command: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        ["nice", *command], env={**os.environ, **(environment or {})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        raise BuildError(f"{' '.join(command[:3])} … failed:\n{said[-3000:]}")
    return done.stdout


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def progress(what: str) -> Iterator[None]:
    began = time.monotonic()
    say(f"{what} …")
    yield
    say(f"{what}: {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
