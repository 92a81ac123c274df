"""Transactions: isolation, fencing, timeouts, what is refused."""

from blackbox.shared import shared
from broker_tests.clients import test_transactions

globals().update(shared(test_transactions))
