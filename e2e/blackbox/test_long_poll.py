"""A fetch that waits."""

from blackbox.shared import shared
from broker_tests.clients import test_long_poll

globals().update(shared(test_long_poll))
