"""The Spark image's program: what it becomes. That Spark accepts it is seen on kind."""

import os
import subprocess
import sys

import pytest

from odradek_spark.entrypoint import command, main

IMAGE = {"SPARK_HOME": "/spark", "ODRADEK_SPARK_JARS": "/jars"}
EXECUTOR = {
    "SPARK_EXECUTOR_MEMORY": "512m", "SPARK_DRIVER_URL": "spark://d:7078", "SPARK_EXECUTOR_ID": "2",
    "SPARK_EXECUTOR_CORES": "1", "SPARK_APPLICATION_ID": "app-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9", "SPARK_EXECUTOR_POD_NAME": "x-exec-2",
    "SPARK_RESOURCE_PROFILE_ID": "3",
}  # fmt: skip


def test_a_driver_is_spark_submit_in_client_mode() -> None:
    words = command(["driver", "--master", "k8s://x", "main.py"],
                    {**IMAGE, "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5"})  # fmt: skip
    assert words[0] == "/spark/bin/spark-submit"
    assert "spark.driver.bindAddress=10.0.0.5" in words
    assert "spark.driver.extraClassPath=/jars/*" in words
    assert words[-5:] == ["--deploy-mode", "client", "--master", "k8s://x", "main.py"]


def test_an_executor_takes_its_options_in_their_order() -> None:
    options = {f"SPARK_JAVA_OPT_{n}": f"-Dn={n}" for n in (10, 2, 0)}
    words = command(["executor"], {**IMAGE, **EXECUTOR, **options})
    assert words[:6] == ["java", "-Dn=0", "-Dn=2", "-Dn=10", "-Xms512m", "-Xmx512m"]
    assert words[7] == "/spark/jars/*:/jars/*"
    assert words[words.index("--resourceProfileId") + 1] == "3"


def test_a_variable_that_spark_did_not_set_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark", reason="pyspark is missing: make spark")
    before = dict(os.environ)
    assert main(["executor"]) == 2
    assert dict(os.environ) == before
    assert "SPARK_EXECUTOR_MEMORY is not set" in capsys.readouterr().err


def test_anything_else_is_run() -> None:
    pytest.importorskip("pyspark", reason="pyspark is missing: make spark")
    run = [sys.executable, "-m", "odradek_spark.entrypoint", "sh", "-c", "echo $SPARK_HOME; exit 7"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert done.stdout.strip().endswith("pyspark")
