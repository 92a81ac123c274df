"""The cluster as a whole in /metrics, under the names of Kafka's KafkaController beans.

Every broker reports what its own image says, as every controller of Apache Kafka does, so an alert
takes the maximum. The image is immutable, so this runs in the thread that also writes the series
per partition (`server.py`): with 50,000 partitions it would block the event loop for 20 ms.
"""

from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from odradek_broker.metadata.image import MetadataImage, PartitionRegistration
from odradek_protocol.ids import BrokerId

PREFIX = "kafka_controller_kafkacontroller"


class ClusterCollector(Collector):
    def __init__(self, node_id: BrokerId, image: Callable[[], MetadataImage]) -> None:
        self._node_id = node_id
        self._image = image

    def collect(self) -> Iterable[Metric]:
        image = self._image()
        partitions = [p for topic in image.topics.values() for p in topic.partitions.values()]
        fenced = sum(broker.fenced for broker in image.brokers.values())
        counts = {
            "activebrokercount": ("Registered brokers that are not fenced.",
                                  len(image.brokers) - fenced),
            "fencedbrokercount": ("Registered brokers that are fenced.", fenced),
            "globaltopiccount": ("Topics.", len(image.topics)),
            "globalpartitioncount": ("Partitions.", len(partitions)),
            "offlinepartitionscount": ("Partitions without a leader.",
                                       sum(p.leader < 0 for p in partitions)),
            "preferredreplicaimbalancecount": (
                "Partitions that another replica leads than their preferred one.",
                sum(p.leader != p.replicas[0] for p in partitions),
            ),
        }  # fmt: skip
        for name, (text, value) in counts.items():
            yield GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)
        yield GaugeMetricFamily(
            "kafka_server_replicamanager_offlinereplicacount",
            "Replicas of this broker whose log directory failed.",
            value=self._offline_replicas(image, partitions),
        )

    def _offline_replicas(
        self, image: MetadataImage, partitions: Iterable[PartitionRegistration]
    ) -> int:
        own = image.brokers.get(self._node_id)
        if own is None:
            return 0
        return sum(
            replica == self._node_id and not own.has_online_dir(directory)
            for partition in partitions
            for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        )
