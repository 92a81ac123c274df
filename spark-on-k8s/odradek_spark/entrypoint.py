"""The program of the Spark image, as Spark's Kubernetes scheduler and the operator call it:

    driver <arguments of spark-submit>     in the driver's pod
    executor                               in executors; Spark sets SPARK_* variables

Any other command is executed unchanged. It replaces itself (exec), so that the JVM is process 1 and
receives SIGTERM.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

JARS = "/opt/odradek/jars"
BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
USAGE = "usage: driver <arguments of spark-submit> | executor | any command"


def command(arguments: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The command line to execute. Does no I/O."""
    spark_home, jars = env["SPARK_HOME"], env["ODRADEK_SPARK_JARS"]
    if arguments[0] == "driver":
        return [
            f"{spark_home}/bin/spark-submit",
            "--conf", f"spark.driver.bindAddress={env.get('SPARK_DRIVER_BIND_ADDRESS', '0.0.0.0')}",
            "--conf", f"spark.driver.extraClassPath={jars}/*",
            "--conf", f"spark.executor.extraClassPath={jars}/*",
            "--deploy-mode", "client", *arguments[1:],
        ]  # fmt: skip
    if arguments[0] == "executor":
        return _executor(env, spark_home, jars)
    return list(arguments)


def _executor(env: Mapping[str, str], spark_home: str, jars: str) -> list[str]:
    classes = (env.get("SPARK_CLASSPATH"), f"{spark_home}/jars/*", f"{jars}/*",
               env.get("SPARK_EXTRA_CLASSPATH"))  # fmt: skip
    memory = env["SPARK_EXECUTOR_MEMORY"]
    return [
        "java", *_java_options(env), f"-Xms{memory}", f"-Xmx{memory}",
        "-cp", ":".join(one for one in classes if one), BACKEND,
        "--driver-url", env["SPARK_DRIVER_URL"],
        "--executor-id", env["SPARK_EXECUTOR_ID"],
        "--cores", env["SPARK_EXECUTOR_CORES"],
        "--app-id", env["SPARK_APPLICATION_ID"],
        "--hostname", env["SPARK_EXECUTOR_POD_IP"],
        "--resourceProfileId", env.get("SPARK_RESOURCE_PROFILE_ID", "0"),
        "--podName", env["SPARK_EXECUTOR_POD_NAME"],
    ]  # fmt: skip


def _java_options(env: Mapping[str, str]) -> list[str]:
    """Spark hands them over as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …; their order may matter."""
    numbers = sorted(
        int(m[1]) for name in env if (m := re.fullmatch(r"SPARK_JAVA_OPT_(\d+)", name))
    )
    return [env[f"SPARK_JAVA_OPT_{n}"] for n in numbers]


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if given else 2
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    known = {"SPARK_HOME": str(Path(found.origin).parent), "PYSPARK_PYTHON": "python3",
             "ODRADEK_SPARK_JARS": JARS}  # fmt: skip
    env = {**known, **os.environ}
    try:
        words = command(given, env)
    except KeyError as missing:
        print(
            f"{given[0]}: {missing.args[0]} is not set; Spark sets it in its pods", file=sys.stderr
        )
        return 2
    try:
        os.execvpe(words[0], words, env)
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
