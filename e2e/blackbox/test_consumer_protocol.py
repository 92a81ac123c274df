"""The consumer protocol (KIP-848), and a group that changes over to it."""

from blackbox.shared import shared
from broker_tests.clients import test_consumer_protocol

globals().update(shared(test_consumer_protocol))
