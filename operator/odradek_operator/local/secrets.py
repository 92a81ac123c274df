"""Secrets on this machine: a directory per Secret, a file per key, readable by this user only.

    secrets/default/main-cluster-ca/..data -> ..1     replaced as a whole, as the kubelet does it
    secrets/default/main-cluster-ca/ca.crt -> ..data/ca.crt

So a reader, and a runtime that is killed, see either all old or all new keys of a Secret.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from odradek_operator.local.ledger import LedgerError

DATA = "..data"


class LocalSecrets:
    """The Secrets of one namespace."""

    def __init__(self, state_dir: Path, namespace: str) -> None:
        self.directory = state_dir / "secrets" / namespace

    def path(self, name: str, key: str) -> Path:
        return self.directory / name / key

    def read(self, names: Iterable[str]) -> dict[str, Mapping[str, bytes]]:
        """The Secrets of these names that exist."""
        found: dict[str, Mapping[str, bytes]] = {}
        for name in names:
            data = self.directory / name / DATA
            try:
                # The link is resolved once: a write at the same time must not mix two versions.
                version = data.parent / os.readlink(data)
                found[name] = {one.name: one.read_bytes() for one in version.iterdir()}
            except FileNotFoundError:
                continue
            except OSError as error:
                raise LedgerError(f"{data} cannot be read: {error}") from error
        return found

    def write(self, name: str, content: Mapping[str, bytes]) -> None:
        """Replaces the Secret."""
        secret = self.directory / name
        try:
            self._write(secret, content)
        except OSError as error:
            raise LedgerError(f"{secret} cannot be written: {error}") from error

    def remove(self, name: str) -> None:
        shutil.rmtree(self.directory / name, ignore_errors=True)

    def _write(self, secret: Path, content: Mapping[str, bytes]) -> None:
        secret.mkdir(parents=True, exist_ok=True, mode=0o700)
        versions = [p for p in secret.glob("..[0-9]*") if p.is_dir()]
        number = max((int(p.name[2:]) for p in versions), default=0) + 1
        version = secret / f"..{number}"
        version.mkdir(mode=0o700)
        for key, value in content.items():
            descriptor = os.open(version / key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
        _link(secret / DATA, version.name)
        for key in content:
            _link(secret / key, f"{DATA}/{key}")
        for link in secret.iterdir():
            if link.is_symlink() and link.name != DATA and link.name not in content:
                link.unlink()
        for old in versions:
            shutil.rmtree(old, ignore_errors=True)


def secret_of(state_dir: Path, name: str) -> tuple[LocalSecrets, str]:
    """The Secrets of its namespace, and its own name there, of "namespace/name"."""
    namespace, _, own = name.partition("/")
    return LocalSecrets(state_dir, namespace), own


def _link(path: Path, target: str) -> None:
    """Replaces the link atomically; a link that is right already stays."""
    if path.is_symlink() and os.readlink(path) == target:
        return
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)
