"""The archive of Spark's classes: used where it was made, and never required."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek_spark.session.class_archive import archive_options, class_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_session_maps_the_archive_if_there_is_one(spark: SparkSession) -> None:
    archive = class_archive()
    assert archive is not None
    maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()
    assert (str(archive) in maps) == archive.exists()


def test_without_an_archive_java_gets_no_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert archive_options() == ""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # Spark uses this Java only
    assert class_archive() is None


@pytest.mark.spark
@pytest.mark.long  # a JVM that writes 160 MB: 25 s of CPU
def test_it_is_made_and_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c",
               f"import sys; sys.prefix = {str(tmp_path)!r}\n"
               "from odradek_spark.session import class_archive\n"
               "class_archive.main()"]  # fmt: skip
    subprocess.run(command, check=True, timeout=240)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    archive = class_archive()
    assert archive is not None
    assert archive.stat().st_size > 50 << 20
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
