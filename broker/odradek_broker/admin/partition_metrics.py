"""The series of /metrics per partition: eleven, and six more of one that has had traffic.

With 20,000 partitions they take a second to write, so a thread does it (`server.py`): it reads only
single values, and copies the list of partitions in one step.
"""

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from odradek_broker.partition.load import ReplicaLoad
from odradek_broker.partition.service import PartitionService

LABELS = ("topic", "partition")
# Name → its help, and the counter. /v1/loads has rates and an estimate of the CPU.
COUNTED: dict[str, tuple[str, Callable[[ReplicaLoad], int]]] = {
    "odradek_replica_bytes_in": ("Bytes from producers.", lambda load: load.bytes_in),
    "odradek_replica_messages_in": ("Records from producers.", lambda load: load.messages_in),
    "odradek_replica_bytes_out": ("Bytes to consumers.", lambda load: load.bytes_out),
    "odradek_replica_replicated_in": ("Bytes from the leader.", lambda load: load.replicated_in),
    "odradek_replica_replicated_out": ("Bytes to followers.", lambda load: load.replicated_out),
    "odradek_replica_requests": (
        "Partitions in requests of producers, consumers and followers.",
        lambda load: load.produces + load.fetches + load.replications,
    ),
}


class PartitionCollector(Collector):
    def __init__(self, partitions: PartitionService) -> None:
        self._partitions = partitions

    def collect(self) -> Iterable[Metric]:
        gauges = {
            name: GaugeMetricFamily(name, text, labels=LABELS)
            for name, text in {
                "kafka_log_log_size": "Bytes on disk.",
                "kafka_log_log_logstartoffset": "First offset.",
                "kafka_log_log_logendoffset": "Next offset to be written.",
                "kafka_log_log_numlogsegments": "Segments.",
                "kafka_topic_partition_current_offset": "High watermark.",
                "kafka_topic_partition_oldest_offset": "First offset.",
                "kafka_topic_partition_leader": "Broker id of the leader.",
                "kafka_topic_partition_leader_is_preferred": "1 if the preferred replica leads.",
                "kafka_topic_partition_replicas": "Replicas.",
                "kafka_topic_partition_in_sync_replica": "In-sync replicas.",
                "kafka_topic_partition_under_replicated_partition": "1 if replicas are missing.",
            }.items()
        }
        for (topic, index), partition in list(self._partitions.by_name.items()):
            log = partition.log
            preferred = partition.replicas[:1] == (partition.leader,)
            values = (
                log.size_bytes,
                log.log_start_offset,
                log.log_end_offset,
                len(log.segments),
                partition.high_watermark,
                log.log_start_offset,
                partition.leader,
                int(preferred),
                len(partition.replicas),
                len(partition.isr),
                int(len(partition.isr) < len(partition.replicas)),
            )
            for family, value in zip(gauges.values(), values, strict=True):
                family.add_metric((topic, str(index)), value)
        return [*gauges.values(), *self._loads()]

    def _loads(self) -> Iterable[Metric]:
        counters = {
            name: CounterMetricFamily(name, text, labels=LABELS)
            for name, (text, _) in COUNTED.items()
        }
        for (topic, index), partition in list(self._partitions.by_name.items()):
            load = partition.load
            if any(load.counters()):
                for name, (_, count) in COUNTED.items():
                    counters[name].add_metric((topic, str(index)), count(load))
        return counters.values()
