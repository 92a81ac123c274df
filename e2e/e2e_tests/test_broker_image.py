"""The broker's image as `docker run --read-only odradek/broker` runs it, and its size."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from odradek_images import archive, build
from odradek_images.table import BROKER, ROOT, USER_ID, version

MB = 1_000_000
DISK_MAX, COMPRESSED_MAX = 150 * MB, 60 * MB

# Debian's packages are downloaded and installed: a minute, and root.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _can_build() -> None:
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("an image without a registry needs root and debootstrap")


def test_docker_run_without_arguments_is_a_broker() -> None:
    image = build.assemble(BROKER)
    # A process namespace of its own: whatever happens, nothing outlives the command.
    inside = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*inside, sys.executable, "-m", "e2e_tests.broker_image", str(image)],
        cwd=ROOT / "e2e", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert "world" in seen["read"]
    assert seen["user"] == USER_ID
    assert seen["code"] == 0
    assert seen["compiled"] or sys.version_info[:2] != (3, 11)
    assert seen["sbom"] > 50
    assert seen["labels"]["org.opencontainers.image.version"] == version()
    assert seen["writable"] == []


def test_the_broker_image_is_small() -> None:
    image = build.assemble(BROKER)
    assert image.stat().st_size < DISK_MAX
    whole = archive.Layer(image, "")
    assert archive.compressed_bytes([whole]) < COMPRESSED_MAX
