"""odradek_testkit.kubernetes.programs: a release over HTTP, checked; what is missing is named."""

import hashlib
import platform
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from odradek_e2e import chart
from odradek_testkit.kubernetes.programs import (
    KUBERNETES,
    RELEASES_VARIABLE,
    ProgramsMissingError,
    program,
)

CONTENT = b"#!/bin/sh\necho kubectl\n"
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a release on a server of its own; no Go, no cache, no other programs."""
    directory = tmp_path / "release" / KUBERNETES / "bin" / "linux" / MACHINE
    directory.mkdir(parents=True)
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "release"))
    ) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv(RELEASES_VARIABLE, f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("PATH", "/nonexistent")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
        monkeypatch.delenv("ODRADEK_REQUIRE_TOOLS", raising=False)
        yield directory
        server.shutdown()


def publish(release: Path, name: str, digest: str) -> None:
    (release / name).write_bytes(CONTENT)
    (release / f"{name}.sha256").write_text(digest)


def test_a_program_of_the_release_is_downloaded_once(release: Path) -> None:
    publish(release, "kubectl", hashlib.sha256(CONTENT).hexdigest())
    found = program("kubectl")
    assert found.read_bytes() == CONTENT
    assert found.stat().st_mode & 0o111
    (release / "kubectl").unlink()
    assert program("kubectl") == found
    assert [path.name for path in found.parent.iterdir() if "partial" in path.name] == []


def test_a_program_that_does_not_match_its_hash_is_refused(release: Path) -> None:
    publish(release, "kubectl", hashlib.sha256(b"another").hexdigest())
    with pytest.raises(ProgramsMissingError, match="does not match its published SHA-256"):
        program("kubectl")


def test_without_the_release_and_without_go_both_are_named(release: Path) -> None:
    for name in ("kubectl", "etcd"):
        with pytest.raises(ProgramsMissingError, match=r"install Go .* KUBEBUILDER_ASSETS"):
            program(name)


def test_programs_of_setup_envtest_are_used(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etcd").write_bytes(CONTENT)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert program("etcd") == tmp_path / "etcd"


def test_the_check_does_not_wait_for_a_build_of_helm(
    release: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chart.main(["lint-if-built"]) == 0
    assert "`make helm-lint` gets helm" in capsys.readouterr().out
    assert chart.main(["lint"]) == 0, "a remark"
    assert "helm cannot be downloaded" in capsys.readouterr().err
