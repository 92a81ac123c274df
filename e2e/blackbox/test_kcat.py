"""kcat: metadata, codecs, headers, offsets by time."""

from blackbox.shared import shared
from broker_tests.clients import test_kcat

globals().update(shared(test_kcat))
