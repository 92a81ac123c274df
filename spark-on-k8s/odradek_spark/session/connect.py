"""A session of Spark Connect on top of this process's own: Spark Declarative Pipelines need one.

    spark = start_session(…, user=sparkConf, made=settings(token))
    with connected(spark, token) as (client, server): …

The server listens on 127.0.0.1, on a free port, and accepts only clients with the token.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
MODE = "SPARK_CONNECT_MODE_ENABLED"  # pyspark.sql.functions then makes columns of Spark Connect


def settings(token: str) -> dict[str, str]:
    return {
        "spark.plugins": PLUGIN,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.authenticate.token": token,
        "spark.sql.connect.serverStacktrace.enabled": "false",
    }


@contextmanager
def connected(spark: SparkSession, token: str) -> Iterator[tuple[Any, Any]]:
    """The client's session, and the server's holder of the same session (by py4j)."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    jvm: Any = spark._jvm
    service = getattr(
        getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$"
    )
    before = os.environ.get(MODE)
    os.environ[MODE] = "1"
    try:
        address = f"sc://localhost:{service.localPort()}/;token={token}"
        client: Any = ConnectSession.builder.remote(address).create()
        try:
            client.range(1).count()  # the server makes the session with the first request
            yield client, _holder(jvm, service, client.client)
        finally:
            client.stop()
    finally:
        if before is None:
            del os.environ[MODE]


def _holder(jvm: Any, service: Any, client: Any) -> Any:
    key = jvm.org.apache.spark.sql.connect.service.SessionKey(
        client._user_id or "", client._session_id
    )
    found = service.sessionManager().getIsolatedSessionIfPresent(key)
    assert found.isDefined(), "the session was made by the request before"
    return found.get()
