#!/bin/bash
# The entrypoint of the Spark image, as Spark's Kubernetes scheduler and the operator call it:
#   driver <arguments of spark-submit>     in the driver's pod
#   executor                               in executors; Spark sets SPARK_* in their environment
# Anything else is run as it is.
set -euo pipefail

SPARK_HOME=${SPARK_HOME:-$(python3 -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')}
export SPARK_HOME PYSPARK_PYTHON=${PYSPARK_PYTHON:-python3}
JARS=${ODRADEK_SPARK_JARS:-/opt/odradek/jars}

case "${1:-}" in
    driver)
        shift
        exec "$SPARK_HOME/bin/spark-submit" \
            --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS}" \
            --conf "spark.driver.extraClassPath=$JARS/*" \
            --conf "spark.executor.extraClassPath=$JARS/*" \
            --deploy-mode client "$@"
        ;;
    executor)
        # Spark hands over JVM options as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …, in any order.
        mapfile -t options < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n | sed 's/^[^=]*=//')
        opens=()
        for package in java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio \
            java.util java.util.concurrent java.util.concurrent.atomic sun.nio.ch sun.nio.cs \
            sun.security.action sun.util.calendar; do
            opens+=("--add-opens=java.base/$package=ALL-UNNAMED")
        done
        exec java "${options[@]}" "${opens[@]}" \
            "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
            -cp "${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*:$JARS/*:${SPARK_EXTRA_CLASSPATH:-}" \
            org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
            --driver-url "$SPARK_DRIVER_URL" \
            --executor-id "$SPARK_EXECUTOR_ID" \
            --cores "$SPARK_EXECUTOR_CORES" \
            --app-id "$SPARK_APPLICATION_ID" \
            --hostname "$SPARK_EXECUTOR_POD_IP" \
            --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" \
            --podName "$SPARK_EXECUTOR_POD_NAME"
        ;;
    *)
        exec "$@"
        ;;
esac
