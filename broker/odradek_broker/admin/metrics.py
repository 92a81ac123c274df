"""/metrics: the broker's counters in Prometheus' format, under the names of Kafka dashboards.

The names are those that the JMX exporter rules of the common dashboards produce
(`kafka_network_requestmetrics_totaltimems`, `kafka_server_brokertopicmetrics_bytesin_total`)
and those of kafka_exporter (`kafka_topic_partition_current_offset`). Nothing is counted here:
a scrape reads the integers of `runtime/metrics.py` and of the logs.
"""

import time
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from odradek_broker.admin.client_metrics import client_metrics
from odradek_broker.admin.group_metrics import group_metrics
from odradek_broker.admin.lag_metrics import lag_metrics
from odradek_broker.admin.quota_metrics import quota_metrics
from odradek_broker.admin.recent import IdleShare, RecentTimes
from odradek_broker.admin.share_metrics import share_metrics
from odradek_broker.admin.state import Readiness
from odradek_broker.admin.storage_metrics import storage_metrics
from odradek_broker.admin.transaction_metrics import transaction_metrics
from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.runtime.metrics import PHASES, Histogram

QUANTILES = ("0.5", "0.75", "0.95", "0.99", "0.999")


def _histogram_buckets(histogram: Histogram) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    seen = 0
    for index, number in enumerate(histogram.buckets[:-1]):
        seen += number
        buckets.append((str((1 << index) / 1e6), seen))
    buckets.append(("+Inf", histogram.count))
    return buckets


def _gauges(values: Mapping[str, float]) -> Iterator[Metric]:
    for name, value in values.items():
        yield GaugeMetricFamily(name, name.replace("_", " "), value=value)


class BrokerCollector(Collector):
    def __init__(self, broker: BrokerContext, readiness: Readiness) -> None:
        self._broker = broker
        self._readiness = readiness
        self._recent = RecentTimes()
        self._idle = IdleShare()

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._topics()
        yield from self._replicas()
        yield from self._quorum()
        yield from self._connections()
        yield from self._request_memory()
        yield from self._event_loop()
        yield from self._cleaner()
        yield from quota_metrics(self._broker.quotas)
        yield from storage_metrics(self._broker.logs.dirs)
        yield from group_metrics(self._broker.groups)
        yield from lag_metrics(self._broker.groups, self._broker.log_ends.end_of)
        yield from share_metrics(self._broker.shares, self._broker.share_coordinator)
        yield from transaction_metrics(
            self._broker.transactions, self._broker.verifier, self._broker.clock.now_ms()
        )
        yield from client_metrics(self._broker.telemetry, self._broker.clock.monotonic_ms())

    def _requests(self) -> Iterable[Metric]:
        total = CounterMetricFamily(
            "kafka_network_requestmetrics_requests",
            "Requests received (RequestsPerSec is the rate of this).",
            labels=("request", "version"),
        )
        phases = {
            phase: _QuantileFamily(
                f"kafka_network_requestmetrics_{phase.lower()}",
                f"{phase} per request kind, in milliseconds.",
            )
            for phase in PHASES
        }
        now_ms = time.monotonic() * 1000
        for metrics in self._broker.metrics.requests.values():
            for version, number in metrics.versions.items():
                total.add_metric((metrics.name, str(version)), number)
            for phase, histogram in zip(PHASES, metrics.phases, strict=True):
                if histogram.count:
                    recent = self._recent.of(histogram, now_ms)
                    phases[phase].add(metrics.name, histogram, recent)
        return (total, *(family for pair in phases.values() for family in pair.families))

    def _topics(self) -> Iterable[Metric]:
        fields = {
            "messages_in": ("messagesin", "Records appended."),
            "bytes_in": ("bytesin", "Bytes of record batches appended."),
            "bytes_out": ("bytesout", "Bytes of record batches sent to consumers."),
            "bytes_rejected": ("bytesrejected", "Bytes of record batches refused."),
            "total_produce_requests": ("totalproducerequests", "Partitions in produce requests."),
            "total_fetch_requests": ("totalfetchrequests", "Partitions in fetch requests."),
            "failed_produce_requests": ("failedproducerequests", "Refused produce partitions."),
            "failed_fetch_requests": ("failedfetchrequests", "Refused fetch partitions."),
        }
        for attribute, (name, text) in fields.items():
            family = CounterMetricFamily(
                f"kafka_server_brokertopicmetrics_{name}", text, labels=("topic",)
            )
            for topic, metrics in self._broker.metrics.topics.items():
                family.add_metric((topic,), getattr(metrics, attribute))
            yield family

    def _replicas(self) -> Iterable[Metric]:
        partitions = self._broker.partitions
        led = [p for p in partitions.by_name.values() if p.leading is not None]
        behind = sum(len(p.isr) < len(p.replicas) for p in led)
        lags = [p.following.lag for p in partitions.by_name.values() if p.following is not None]
        leading = [p.leading for p in led if p.leading is not None]
        under_min = sum(state.under_min_isr for state in leading)
        at_min = sum(len(state.isr) == state.effective_min_isr for state in leading)
        yield from _gauges(
            {
                "kafka_server_replicamanager_partitioncount": len(partitions.by_name),
                "kafka_server_replicamanager_leadercount": len(led),
                "kafka_server_replicamanager_underreplicatedpartitions": behind,
                "kafka_server_replicamanager_underminisrpartitioncount": under_min,
                "kafka_server_replicamanager_atminisrpartitioncount": at_min,
                "kafka_server_replicafetchermanager_maxlag": max(lags, default=0),
                "kafka_log_logmanager_offlinelogdirectorycount": len(
                    self._broker.logs.offline_dirs
                ),
            }
        )
        waiting = GaugeMetricFamily(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "Requests that wait in the purgatory.",
            labels=("delayedOperation",),
        )
        waiting.add_metric(("Produce",), partitions.produce_waiting.waiting)
        waiting.add_metric(("Fetch",), partitions.fetch_waiting.waiting)
        yield waiting
        for name, count in (
            ("kafka_server_replicamanager_isrexpands", partitions.isr_expands),
            ("kafka_server_replicamanager_isrshrinks", partitions.isr_shrinks),
        ):
            yield CounterMetricFamily(name, name.replace("_", " "), value=count)

    def _quorum(self) -> Iterable[Metric]:
        controller, state = self._broker.controller, self._broker.quorum.state
        leader_id = -1 if state.leader_id is None else state.leader_id
        yield CounterMetricFamily(
            "kafka_controller_controllerstats_uncleanleaderelections",
            "Leaders elected that may lack committed records.",
            value=controller.unclean_elections,
        )
        yield from _gauges(
            {
                "kafka_controller_kafkacontroller_activecontrollercount": int(controller.is_active),
                "kafka_server_raftmetrics_current_epoch": state.epoch,
                "kafka_server_raftmetrics_current_leader": leader_id,
                "kafka_server_raftmetrics_high_watermark": state.high_watermark,
                "kafka_server_raftmetrics_log_end_offset": state.log.end_offset,
                "kafka_brokers": len(controller.image.brokers),
                "odradek_ready": int(self._readiness.ready),
            }
        )

    def _connections(self) -> Iterable[Metric]:
        metrics = self._broker.metrics
        yield from _gauges(
            {
                "kafka_server_socket_server_metrics_connection_count": metrics.connections,
                "odradek_connections_limit": metrics.connections_max,
            }
        )
        closed = CounterMetricFamily(
            "odradek_connections_closed", "Connections closed, by reason.", labels=("reason",)
        )
        for reason, number in metrics.connections_closed.items():
            closed.add_metric((reason,), number)
        yield closed
        yield CounterMetricFamily(
            "odradek_connections_accepted",
            "Connections accepted.",
            value=metrics.connections_accepted,
        )

    def _request_memory(self) -> Iterable[Metric]:
        metrics = self._broker.metrics
        yield from _gauges(
            {
                "odradek_request_memory_used_bytes": metrics.request_memory_used,
                "odradek_request_memory_limit_bytes": metrics.request_memory_limit,
                "odradek_request_memory_waiting_connections": metrics.request_memory_waiting,
            }
        )
        yield CounterMetricFamily(
            "odradek_request_memory_waits",
            "Requests that had to wait for memory before they were received.",
            value=metrics.request_memory_waits,
        )
        dropped = CounterMetricFamily(
            "odradek_requests_dropped",
            "Requests whose connection was closed before they were received whole.",
            labels=("reason",),
        )
        dropped.add_metric(("slow",), metrics.requests_dropped_slow)
        dropped.add_metric(("memory",), metrics.requests_dropped_for_memory)
        yield dropped

    def _event_loop(self) -> Iterable[Metric]:
        metrics = self._broker.metrics
        yield from _gauges(
            {
                "odradek_event_loop_lag_seconds": metrics.loop_lag_now_us / 1e6,
                # The loop handles the requests, as the handler threads of Apache Kafka do.
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent": (
                    self._idle.share()
                ),
            }
        )
        yield CounterMetricFamily(
            "odradek_event_loop_lag_windows_late",
            "Times that the 99.9th percentile of the lag was more than a tenth of the session "
            "timeout.",
            value=metrics.loop_lag_windows_late,
        )
        yield HistogramMetricFamily(
            "odradek_event_loop_lag_histogram_seconds",
            "How late the event loop runs a timer.",
            buckets=_histogram_buckets(metrics.loop_lag),
            sum_value=metrics.loop_lag.total_us / 1e6,
        )

    def _cleaner(self) -> Iterable[Metric]:
        metrics = self._broker.cleaner.metrics()
        gauges = {
            "kafka_log_logcleaner_max_clean_time_secs": metrics.max_clean_time_secs,
            "kafka_log_logcleaner_cleaner_recopy_percent": metrics.cleaner_recopy_percent,
            "kafka_log_logcleaner_max_buffer_utilization_percent": (
                metrics.max_buffer_utilization_percent
            ),
            "kafka_log_logcleaner_max_compaction_delay_secs": metrics.max_compaction_delay_secs,
            "kafka_log_logcleaner_deadthreadcount": metrics.dead_thread_count,
            "kafka_log_logcleanermanager_max_dirty_percent": metrics.max_dirty_percent,
            "kafka_log_logcleanermanager_time_since_last_run_ms": metrics.time_since_last_run_ms,
        }
        yield from _gauges(gauges)
        for name, by_dir in (
            ("uncleanable_partitions_count", metrics.uncleanable_partitions),
            ("uncleanable_bytes", metrics.uncleanable_bytes),
        ):
            family = GaugeMetricFamily(
                f"kafka_log_logcleanermanager_{name}",
                "Logs whose compaction failed three times in a row.",
                labels=("logDirectory",),
            )
            for directory, value in by_dir.items():
                family.add_metric((directory,), value)
            yield family
        for name, value in (
            ("runs", metrics.runs),
            ("runs_failed", metrics.runs_failed),
            ("read_bytes", metrics.bytes_read),
            ("written_bytes", metrics.bytes_written),
        ):
            yield CounterMetricFamily(
                f"odradek_log_cleaner_{name}", f"Compaction: {name.replace('_', ' ')}.", value=value
            )


class _QuantileFamily:
    """One phase of request times: quantiles of the last minutes; sum and count since the start."""

    def __init__(self, name: str, text: str) -> None:
        self._quantiles = GaugeMetricFamily(name, text, labels=("request", "quantile"))
        self._summary = SummaryMetricFamily(f"{name}_all", text, labels=("request",))
        self.families: tuple[Metric, ...] = (self._quantiles, self._summary)

    def add(self, request: str, histogram: Histogram, recent: Histogram) -> None:
        """No request lately: no quantiles, so that a plot ends instead of showing old numbers."""
        for quantile in QUANTILES if recent.count else ():
            value_ms = recent.quantile_us(float(quantile)) / 1000.0
            self._quantiles.add_metric((request, quantile), value_ms)
        self._summary.add_metric(
            (request,), count_value=histogram.count, sum_value=histogram.total_us / 1000.0
        )
