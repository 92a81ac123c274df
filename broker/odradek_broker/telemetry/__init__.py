"""Metrics that clients push to the broker (KIP-714).

    subscriptions  which metrics a client is asked for, from the settings CLIENT_METRICS
    instances      the clients that asked: intervals, limits, refusals
    otlp           the metrics in a push: OpenTelemetry's protobuf, with limits
    store          the last values of every client, bounded, for /metrics
    service        ClientTelemetry: the two requests. Decodes pushes in a thread

An operator creates a subscription (`kafka-client-metrics.sh --alter`, `odradek configs alter
client-metrics`); clients ask for theirs every few minutes and push what it names.
"""
