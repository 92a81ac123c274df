"""Bytes that no client should send."""

from blackbox.shared import shared
from broker_tests.clients import test_bad_input

globals().update(shared(test_bad_input))
