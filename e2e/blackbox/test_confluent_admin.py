"""librdkafka's admin client: topics, configs, offsets, refusals."""

from blackbox.shared import shared
from broker_tests.clients import test_confluent_admin

globals().update(shared(test_confluent_admin, {"test_broker_configs": "knows the directory"}))
