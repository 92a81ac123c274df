"""A small Debian with Python, from Debian's packages: the base of images without a registry.

Made by debootstrap (root is needed) from the mirror that this machine uses, then everything is
removed that a container does not need: documentation, locales, package lists, the mirror's address.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from odradek_images.table import SUITE

UNWANTED = (
    "usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian",
    "usr/share/common-licenses", "usr/share/bash-completion", "usr/share/zoneinfo",
    "var/cache/apt", "var/cache/debconf", "var/lib/apt/lists", "var/log", "tmp",
    "etc/apt/sources.list", "etc/apt/sources.list.d", "etc/hostname", "etc/resolv.conf",
    "etc/machine-id", "debootstrap", "dev", "proc", "sys",
)  # fmt: skip
EMPTY = (
    "opt/odradek",
    "dev",
    "proc",
    "sys",
    "tmp",
    "var/log",
    "var/cache/apt",
    "var/lib/apt/lists",
)


class DebianError(Exception):
    """The base cannot be made here; the text says what is missing."""


def mirror(sources: Iterable[str]) -> str:
    """The first mirror of the texts of /etc/apt, in either of apt's two formats.

    DEBIAN_MIRROR wins. Security updates have a mirror of their own, which debootstrap cannot use.
    """
    if given := os.environ.get("DEBIAN_MIRROR"):
        return given
    for text in sources:
        lines = re.findall(r"^(?:URIs:\s*|deb\s+(?:\[[^\]]*\]\s+)?)(\S+)", text, re.M)
        for found in lines:
            if "security" not in found:
                return str(found)
    raise DebianError("no Debian mirror is known: set DEBIAN_MIRROR")


def apt_sources() -> list[str]:
    listed = sorted(Path("/etc/apt/sources.list.d").glob("*"))
    paths = [Path("/etc/apt/sources.list"), *listed]
    return [path.read_text() for path in paths if path.is_file()]


def make_base(target: Path, include: Iterable[str]) -> None:
    """Creates `target`, which appears only when it is complete."""
    if os.geteuid() != 0:
        raise DebianError("debootstrap needs root; with a registry `docker build` does not")
    if shutil.which("debootstrap") is None:
        raise DebianError("debootstrap is missing: apt-get install -y debootstrap")
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    log = target.with_name(f"{target.name}.log")
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(include)}", SUITE,
               str(partial), mirror(apt_sources())]  # fmt: skip
    # It mounts /proc and /sys in a mount namespace of its own, so that they vanish with it.
    alone = ["unshare", "--mount", "nice"]
    with open(log, "wb") as out:
        done = subprocess.run([*alone, *command], stdout=out, stderr=out, check=False)
    if done.returncode != 0:
        raise DebianError(f"debootstrap failed, see {log}:\n{log.read_text()[-1500:]}")
    prune(partial)
    partial.rename(target)


def prune(root: Path) -> None:
    for name in UNWANTED:
        path = root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for name in EMPTY:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)


def installed(root: Path) -> dict[str, str]:
    """Debian package → version, from dpkg's database."""
    status = root / "var" / "lib" / "dpkg" / "status"
    found = {}
    for block in status.read_text().split("\n\n") if status.exists() else ():
        fields = dict(re.findall(r"^(Package|Version|Status): (.+)$", block, re.M))
        if fields.get("Status", "").endswith(" installed"):
            found[fields["Package"]] = fields["Version"]
    return found
