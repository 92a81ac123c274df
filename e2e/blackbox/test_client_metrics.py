"""Subscriptions of client metrics, with kafka-client-metrics."""

from blackbox.shared import shared
from broker_tests.clients import test_client_metrics

globals().update(
    shared(
        test_client_metrics,
        {
            "test_without_subscriptions_clients_are_not_asked": "other tests have subscriptions",
            "test_librdkafka_and_java_push": "reads the metrics port; Kafka needs a plugin for it",
        },
    )
)
