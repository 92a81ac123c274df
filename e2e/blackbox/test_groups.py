"""The classic group protocol: sharing, static members, offsets, admin."""

from blackbox.shared import shared
from broker_tests.clients import test_groups

globals().update(shared(test_groups))
