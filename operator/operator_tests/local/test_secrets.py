"""Secrets as files: replaced as a whole, private, and read without mixing two versions."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from odradek_operator.local.secrets import LocalSecrets


def test_a_secret_is_replaced_as_a_whole(tmp_path: Path) -> None:
    secrets = LocalSecrets(tmp_path, "default")
    assert secrets.read(["ca"]) == {}
    secrets.write("ca", {"ca.crt": b"1", "ca.key": b"1", "next.key": b"1"})
    secrets.write("ca", {"ca.crt": b"2", "ca.key": b"2"})
    assert secrets.read(["ca", "other"]) == {"ca": {"ca.crt": b"2", "ca.key": b"2"}}
    assert secrets.path("ca", "ca.crt").read_bytes() == b"2"
    assert not secrets.path("ca", "next.key").is_symlink()
    directories = [p for p in (tmp_path / "secrets/default/ca").iterdir() if not p.is_symlink()]
    assert len(directories) == 1, "old versions, with their keys, are deleted"


def test_only_this_user_can_read_it(tmp_path: Path) -> None:
    secrets = LocalSecrets(tmp_path, "default")
    secrets.write("ca", {"ca.key": b"1"})
    assert stat.S_IMODE(secrets.path("ca", "ca.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "secrets/default/ca").stat().st_mode) == 0o700


def test_a_write_that_was_interrupted_leaves_the_old_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = LocalSecrets(tmp_path, "default")
    secrets.write("ca", {"ca.crt": b"1", "ca.key": b"1"})

    def killed(path: Path, target: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("odradek_operator.local.secrets._link", killed)
        with pytest.raises(KeyboardInterrupt):
            secrets.write("ca", {"ca.crt": b"2", "ca.key": b"2"})
    assert secrets.read(["ca"]) == {"ca": {"ca.crt": b"1", "ca.key": b"1"}}
    secrets.write("ca", {"ca.crt": b"3", "ca.key": b"3"})
    assert secrets.read(["ca"]) == {"ca": {"ca.crt": b"3", "ca.key": b"3"}}
