"""aiokafka: records, codecs, offsets by time, admin."""

from blackbox.shared import shared
from broker_tests.clients import test_aiokafka

globals().update(shared(test_aiokafka))
