"""kafka-python: records, codecs, offsets by time, admin."""

from blackbox.shared import shared
from broker_tests.clients import test_kafka_python

globals().update(shared(test_kafka_python, {"test_admin_configs": "knows the directory"}))
