"""librdkafka: records, codecs, acks, times, limits."""

from blackbox.shared import shared
from broker_tests.clients import test_confluent

globals().update(shared(test_confluent))
