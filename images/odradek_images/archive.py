"""Writes images in the format of `docker load`, `ctr images import` and `kind load image-archive`.

    write_archive(path, [Built("odradek/broker:1", [layer_a, layer_b], {"User": "10001"})])

A docker-archive is a tar of layers (tars themselves, named by their sha256), a JSON configuration
per image and manifest.json:

    manifest.json              [{"Config": "9f…json", "RepoTags": ["odradek/broker:1"],
                                 "Layers": ["1c…/layer.tar", "77…/layer.tar"]}]
    9f….json                   {"architecture": "amd64", "config": {…}, "rootfs": {"diff_ids": […]}}

The same files give the same bytes: owners, order and (for `when=0`) times are fixed.
"""

import hashlib
import io
import json
import platform
import tarfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
EPOCH = "1970-01-01T00:00:00Z"
SET_ID_BITS = 0o6000
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Layer:
    """A tar of files."""

    path: Path
    digest: str  # sha256 of the tar, in hex


@dataclass(frozen=True)
class Built:
    """An image as an archive needs it."""

    tag: str
    layers: Sequence[Layer]
    config: dict[str, Any] = field(default_factory=dict)  # Entrypoint, User, Env …


def write_layer(
    target: Path,
    source: Path,
    prefix: str = "",
    when: int | None = None,
    wanted: Callable[[str], bool] = lambda _: True,
) -> Layer:
    """The tree below `source` as a layer below `prefix`, owned by root.

    Devices, sockets and set-uid bits are left out: no program in these images changes its user.
    `when`: the time of every file; None: its own, which the .pyc files of Debian rely on.
    """
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        for part in _parents(prefix):
            tar.addfile(_owned(_directory(part), when))
        for path in sorted(source.rglob("*")):
            name = path.relative_to(source).as_posix()
            if not wanted(name):
                continue
            info = tar.gettarinfo(path, f"{prefix}/{name}".strip("/"))
            if info is None or not (info.isfile() or info.isdir() or info.issym() or info.islnk()):
                continue
            _owned(info, when)
            if info.isreg():
                with open(path, "rb") as content:
                    tar.addfile(info, content)
            else:
                tar.addfile(info)
    return Layer(target, sha256_of(target))


def write_directory(target: Path, name: str, owner: int) -> Layer:
    """A layer with one empty directory that a user owns; a new volume there gets the same owner."""
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        *parents, directory = _parents(name)
        for part in parents:
            tar.addfile(_owned(_directory(part), 0))
        info = _owned(_directory(directory), 0)
        info.uid = info.gid = owner
        info.uname = info.gname = ""
        tar.addfile(info)
    return Layer(target, sha256_of(target))


def compressed_bytes(layers: Sequence[Layer]) -> int:
    """The layers as a registry would send them, compressed with gzip."""
    total = 0
    for layer in layers:
        packer = zlib.compressobj(6, wbits=31)
        with open(layer.path, "rb") as content:
            while chunk := content.read(CHUNK):
                total += len(packer.compress(chunk))
        total += len(packer.flush())
    return total


def write_archive(target: Path, images: Sequence[Built]) -> None:
    manifest, members = [], dict[str, bytes | Path]()
    for image in images:
        config = json.dumps(_config(image), sort_keys=True).encode()
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        members[name] = config
        layers = {f"{layer.digest}/layer.tar": layer.path for layer in image.layers}
        members |= layers
        manifest.append({"Config": name, "RepoTags": [image.tag], "Layers": list(layers)})
    members["manifest.json"] = json.dumps(manifest).encode()
    partial = target.with_name(f"{target.name}.partial")
    with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
        for member, content in members.items():
            _add(tar, member, content)
    partial.rename(target)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as content:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def architecture() -> str:
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def _config(image: Built) -> dict[str, Any]:
    return {
        "architecture": architecture(),
        "os": "linux",
        "created": EPOCH,
        "config": image.config,
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{layer.digest}" for layer in image.layers],
        },
        "history": [{"created": EPOCH, "created_by": "odradek"} for _ in image.layers],
    }


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    info = tarfile.TarInfo(name)
    if isinstance(content, bytes):
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    else:
        info.size = content.stat().st_size
        with open(content, "rb") as opened:
            tar.addfile(info, opened)


def _parents(prefix: str) -> list[str]:
    parts = [part for part in prefix.split("/") if part]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def _directory(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    return info


def _owned(info: tarfile.TarInfo, when: int | None) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    info.mode &= ~SET_ID_BITS
    info.mtime = when if when is not None else int(info.mtime)
    return info
