"""Kafka Streams with group.protocol=streams, and kafka-streams-groups."""

from blackbox.shared import shared
from broker_tests.clients import test_java_streams_groups

globals().update(shared(test_java_streams_groups))
