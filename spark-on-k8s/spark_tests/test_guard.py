"""Checkpoints and tables of other pipelines are refused, with the field that names them."""

from typing import Any

import pytest

from odradek_api.pipeline.job import SpecError, read_job
from odradek_spark.jobs.guard import guard

import json  # isort: skip


class Memory:
    """A store of files that forgets nothing."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def write(self, path: str, text: str) -> None:
        self.files[path] = text

    def names(self, path: str) -> list[str]:
        inside = [name.removeprefix(f"{path}/") for name in self.files if name.startswith(path)]
        return sorted({name.split("/")[0] for name in inside})


def job(name: str = "one", topic: str = "visits", checkpoint: str = "/ck", **sink: Any) -> Any:
    spec = {
        "kafka": {"bootstrapServers": "x:1"},
        "sources": [{"topics": [topic]}],
        "sink": sink or {"console": {}},
        "checkpoint": checkpoint,
    }
    return read_job(json.dumps({"name": name, "spec": spec}).encode())


def test_a_checkpoint_is_its_pipelines() -> None:
    files = Memory()
    guard(files, job())
    guard(files, job())
    with pytest.raises(SpecError, match=r"spec\.checkpoint: /ck is the checkpoint of default/one"):
        guard(files, job("two"))
    with pytest.raises(SpecError, match=r"spec\.sources: .* topics visits, not for topics orders"):
        guard(files, job(topic="orders"))


def test_a_directory_with_other_files_is_no_checkpoint() -> None:
    files = Memory()
    files.write("/ck/thesis.tex", "")
    with pytest.raises(SpecError, match=r"spec\.checkpoint: /ck contains thesis\.tex"):
        guard(files, job())


def test_a_table_is_written_with_one_checkpoint() -> None:
    files = Memory()
    table: dict[str, Any] = {"table": {"path": "/out"}}
    guard(files, job(**table))
    guard(files, job(**table))
    with pytest.raises(SpecError, match=r"spec\.sink\.table\.path: /out was written with another"):
        guard(files, job(checkpoint="/new", **table))
    with pytest.raises(SpecError, match=r"spec\.sink\.table\.path: /out is the table of"):
        guard(files, job("two", checkpoint="/ck2", **table))


def test_a_directory_with_other_files_is_no_table() -> None:
    files = Memory()
    files.write("/out/part-0.parquet", "")
    with pytest.raises(SpecError, match=r"spec\.sink\.table\.path: /out contains part-0"):
        guard(files, job(table={"path": "/out"}))
    assert list(files.files) == ["/out/part-0.parquet"]
