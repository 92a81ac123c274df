"""A small Debian with Python, from Debian's packages: the base of images without a registry.

Made by debootstrap (root is needed) from the mirror that this machine uses. `clean` removes what no
container needs: documentation, locales, package lists, the mirror's address. `prune`, for images
that run one program, also removes the packages that only install, log in or mount. A shell,
coreutils, grep and tar stay, for `kubectl exec` and `kubectl cp`. The Dockerfile removes the same
with `python3 -m odradek_images.debian`.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek_images.table import SUITE

UNWANTED = (
    "usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian",
    "usr/share/common-licenses", "usr/share/bash-completion", "usr/share/zoneinfo",
    "var/cache/apt", "var/cache/debconf", "var/lib/apt", "var/log", "tmp", "etc/apt/sources.list",
    "etc/apt/sources.list.d", "etc/hostname", "etc/resolv.conf", "etc/machine-id", "debootstrap",
    "dev", "proc", "sys",
)  # fmt: skip
# Left by packages that are removed below, or of no use to our programs.
UNWANTED_PATTERNS = (
    "usr/lib/*/gconv", "usr/lib/*/perl-base", "usr/lib/*/e2fsprogs", "usr/lib/*/security",
    "usr/lib/python3*/pydoc_data", "usr/lib/python3*/lib2to3", "usr/lib/python3*/ensurepip",
    "usr/lib/python3*/lib-dynload/nis.*", "usr/lib/python3*/lib-dynload/_dbm.*",
    "usr/share/perl*", "usr/share/debconf", "usr/lib/apt", "usr/lib/dpkg", "etc/apt", "etc/pam.d",
    "var/lib/dpkg/info", "var/lib/dpkg/*-old", "var/lib/pam", "var/backups",
    "usr/lib/*/libgio-2.0.so*",
)  # fmt: skip
# Packages whose files are removed. Nothing else needs their libraries, except the modules nis and
# _dbm of Python, and Java for printing (cups, avahi, dbus); `orphans` finds out.
UNWANTED_PACKAGES = (
    "adduser", "apt", "bsdutils", "debconf", "debian-archive-keyring", "dpkg", "e2fsprogs", "gpgv",
    "init-system-helpers", "libapt-pkg6.0", "libaudit1", "libaudit-common", "libavahi-client3",
    "libavahi-common-data", "libavahi-common3", "libblkid1", "libcap-ng0", "libcom-err2",
    "libcups2", "libdb5.3", "libdbus-1-3", "libdebconfclient0", "libext2fs2", "libgcrypt20",
    "libgnutls30", "libgpg-error0", "libgssapi-krb5-2", "libhogweed6", "libidn2-0",
    "libk5crypto3", "libkeyutils1", "libkrb5-3", "libkrb5support0", "libmount1", "libnettle8",
    "libnsl2", "libp11-kit0", "libpam-modules", "libpam-modules-bin", "libpam-runtime", "libpam0g",
    "libseccomp2", "libsemanage-common", "libsemanage2", "libsepol2", "libsmartcols1", "libss2",
    "libsystemd0", "libtasn1-6", "libtirpc-common", "libtirpc3", "libudev1", "libunistring2",
    "libxxhash0", "login", "logsave", "mount", "ncurses-bin", "openssl", "passwd", "perl-base",
    "sysvinit-utils", "tzdata", "util-linux", "util-linux-extra",
)  # fmt: skip
EMPTY = ("opt/odradek", "dev", "proc", "sys", "tmp", "var/log")
MOUNTED = ("dev", "proc", "sys", "tmp", "etc/hostname", "etc/resolv.conf")  # in a docker build


class DebianError(Exception):
    """The base cannot be made here; the text names what is missing."""


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
    """The base of images that run one program. `target` appears only when it is complete."""
    with _bootstrapped(target, include) as tree:
        prune(tree)
        if shutil.which("readelf") and (lost := orphans(tree)):
            raise DebianError(f"a removed package is needed: {lost}")


def make_system(target: Path, include: Iterable[str]) -> None:
    """The same for containers that run systemd or tools: all packages stay."""
    with _bootstrapped(target, include) as tree:
        clean(tree)


@contextmanager
def _bootstrapped(target: Path, include: Iterable[str]) -> Iterator[Path]:
    """A new Debian, which gets its name `target` after the block."""
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
    yield partial
    partial.rename(target)


def prune(root: Path, kept: Collection[str] = ()) -> None:
    """`kept`: paths that cannot be removed here."""
    remove_packages(root, UNWANTED_PACKAGES)
    for path in [path for pattern in UNWANTED_PATTERNS for path in root.glob(pattern)]:
        _remove(path)
    clean(root, kept)


def clean(root: Path, kept: Collection[str] = ()) -> None:
    for name in UNWANTED:
        if name not in kept:
            _remove(root / name)
    for name in EMPTY:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_packages(root: Path, names: Iterable[str]) -> None:
    """Deletes their files and their entries in dpkg's database, without running their scripts."""
    info, status = root / "var/lib/dpkg/info", root / "var/lib/dpkg/status"
    for name in names:
        for listed in (*info.glob(f"{name}.list"), *info.glob(f"{name}:*.list")):
            for line in listed.read_text().splitlines():
                path = root / line.lstrip("/")
                if not path.is_dir():  # also /lib, which is a link to a directory
                    path.unlink(missing_ok=True)
    if status.exists():
        gone = set(names)
        blocks = status.read_text().split("\n\n")
        left = [one for one in blocks if _package(one) not in gone]
        status.write_text("\n\n".join(left))


def _package(block: str) -> str:
    found = re.search(r"^Package: (.+)$", block, re.M)
    return found[1] if found else ""


def orphans(root: Path) -> dict[str, set[str]]:
    """Programs and libraries → libraries that they are linked with and that are not there."""
    there = {path.name for path in (root / "usr/lib").rglob("*.so*")}
    found = {}
    for path in (*(root / "usr/bin").iterdir(), *(root / "usr/lib").rglob("*.so*")):
        if path.is_symlink() or not path.is_file():
            continue
        said = subprocess.run(
            ["readelf", "--dynamic", str(path)], capture_output=True, text=True, check=False
        ).stdout
        if lost := set(re.findall(r"\(NEEDED\).*\[(.+)\]", said)) - there:
            found[path.relative_to(root).as_posix()] = lost
    return found


def installed(root: Path) -> dict[str, str]:
    """Debian package → version, from dpkg's database."""
    status = root / "var" / "lib" / "dpkg" / "status"
    found = {}
    for block in status.read_text().split("\n\n") if status.exists() else ():
        fields = dict(re.findall(r"^(Package|Version|Status): (.+)$", block, re.M))
        if fields.get("Status", "").endswith(" installed"):
            found[fields["Package"]] = fields["Version"]
    return found


if __name__ == "__main__":
    prune(Path("/"), MOUNTED)
