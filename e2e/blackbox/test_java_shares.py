"""Share groups: KafkaShareConsumer, kafka-share-groups, the console share consumer."""

from blackbox.shared import shared
from broker_tests.clients import test_java_shares

globals().update(shared(test_java_shares))
