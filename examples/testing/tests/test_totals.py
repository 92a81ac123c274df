"""PySpark: a batch over a topic, with the real connector."""

import pytest

from odradek.testing import Kafka

pytest.importorskip("pyspark")
from shop.totals import totals


def test_amounts_are_summed_by_customer(kafka: Kafka) -> None:
    kafka.topics.create("amounts", partitions=2)
    kafka.produce("amounts", "1", "2", key="ann")
    kafka.produce("amounts", "10", key="bob")
    assert totals(kafka.bootstrap) == {"ann": 3, "bob": 10}
