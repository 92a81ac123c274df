"""Fetches Apache Kafka before the tests need it: `python -m odradek_testkit.engines.fetch`."""

from odradek_testkit.engines.embedded import RunningBroker
from odradek_testkit.engines.java_tools import archive_classes, class_archive, kafka_jars


def main() -> None:
    kafka_jars()
    archive = class_archive()
    if archive is not None and not archive.exists():
        with RunningBroker() as broker:
            archive_classes(broker.bootstrap)


if __name__ == "__main__":
    main()
