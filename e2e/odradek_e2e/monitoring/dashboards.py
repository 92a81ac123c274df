"""The dashboards of the chart, one per question. Both engines have the metrics that they use,
except where a panel says otherwise."""

from odradek_e2e.monitoring.grafana import Dashboard, Panel, Query

OURS = "Only the embedded engine has this."
CONTROLLER = "kafka_controller_kafkacontroller"
REPLICAS = "kafka_server_replicamanager"
TRAFFIC = "kafka_server_brokertopicmetrics"
TIMES = "kafka_network_requestmetrics"
LAG = "kafka_consumergroup_lag_sum"
# Apache Kafka has a counter of refused requests only after the first one.
OR_NONE = "or 0 * sum by (instance) (up{SELECT})"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{SELECT}}[$__rate_interval]))"


def _p99(phase: str, request: str, by: str = "instance") -> str:
    selected = f'SELECT,request="{request}",quantile="0.99"'
    return f"max by ({by}) ({TIMES}_{phase}{{{selected}}})"


HEALTH = Dashboard("kafka-health", "Kafka: is it healthy?", [
    Panel("Brokers", [Query(f"max({CONTROLLER}_activebrokercount{{SELECT}})")], stat=True),
    Panel("Fenced brokers", [Query(f"max({CONTROLLER}_fencedbrokercount{{SELECT}})")],
          stat=True, red_from=1, help="Registered, but without heartbeats."),
    Panel("Partitions without a leader",
          [Query(f"max({CONTROLLER}_offlinepartitionscount{{SELECT}})")], stat=True, red_from=1),
    Panel("Below min.insync.replicas",
          [Query(f"sum({REPLICAS}_underminisrpartitioncount{{SELECT}})")], stat=True, red_from=1,
          help="Partitions that refuse writes with acks=all."),
    Panel("Under-replicated", [Query(f"sum({REPLICAS}_underreplicatedpartitions{{SELECT}})")],
          stat=True, red_from=1),
    Panel("Active controllers", [Query(f"sum({CONTROLLER}_activecontrollercount{{SELECT}})")],
          stat=True, red_from=2),
    Panel("Failed log directories",
          [Query("sum(kafka_log_logmanager_offlinelogdirectorycount{SELECT})")],
          stat=True, red_from=1),
    Panel("Partitions", [Query(f"max({CONTROLLER}_globalpartitioncount{{SELECT}})")], stat=True),
    Panel("Bytes in by topic", [Query(_rate(f"{TRAFFIC}_bytesin_total", "topic"), "{{topic}}")],
          unit="Bps"),
    Panel("Bytes out by topic", [Query(_rate(f"{TRAFFIC}_bytesout_total", "topic"), "{{topic}}")],
          unit="Bps"),
    Panel("Records in by topic", [Query(_rate(f"{TRAFFIC}_messagesin_total", "topic"),
                                        "{{topic}}")]),
    Panel("Size of the logs by broker",
          [Query("sum by (instance) (kafka_log_log_size{SELECT})", "{{instance}}")], unit="bytes"),
    Panel("Free space of log directories",
          [Query("odradek_log_dir_free_bytes{SELECT}", "{{instance}} {{logDirectory}}")],
          unit="bytes", help=OURS),
    Panel("Memory", [Query("process_resident_memory_bytes{SELECT}", "{{instance}}")],
          unit="bytes"),
])  # fmt: skip

SLOW = Dashboard("kafka-slow", "Kafka: who is slow?", [
    Panel("99th percentile of produce requests", [Query(_p99("totaltimems", "Produce"),
                                                        "{{instance}}")], unit="ms"),
    Panel("99th percentile of fetch requests",
          [Query(_p99("totaltimems", "Fetch"), "{{instance}}")], unit="ms",
          help="Contains the wait for new records: fetch.max.wait.ms."),
    Panel("Where the time of produce requests goes", [
        Query(_p99("requestqueuetimems", "Produce", "request"), "waits for its turn"),
        Query(_p99("localtimems", "Produce", "request"), "this broker"),
        Query(_p99("remotetimems", "Produce", "request"), "followers"),
        Query(_p99("responsequeuetimems", "Produce", "request"), "response waits"),
        Query(_p99("responsesendtimems", "Produce", "request"), "response is sent"),
    ], unit="ms", help="99th percentiles of the parts, of the slowest broker."),
    Panel("Slowest kinds of requests", [Query(
        f'topk(8, max by (request) ({TIMES}_totaltimems{{SELECT,quantile="0.99"}}))',
        "{{request}}")], unit="ms"),
    Panel("Requests per second", [Query(_rate(f"{TIMES}_requests_total", "request"),
                                        "{{request}}")]),
    Panel("Idle share", [Query(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent{SELECT}",
        "{{instance}}")], unit="percentunit", help="0: the broker has no time left."),
    Panel("CPU", [Query(_rate("process_cpu_seconds_total", "instance"), "{{instance}}")],
          unit="percentunit"),
    Panel("Lag of the event loop",
          [Query("odradek_event_loop_lag_seconds{SELECT}", "{{instance}}")], unit="s", help=OURS),
    Panel("Connections", [Query(
        "sum by (instance) (kafka_server_socket_server_metrics_connection_count{SELECT})",
        "{{instance}}")]),
    Panel("Waiting requests", [Query(
        "kafka_server_delayedoperationpurgatory_purgatorysize"
        '{SELECT,delayedOperation=~"Produce|Fetch"}', "{{instance}} {{delayedOperation}}")]),
])  # fmt: skip

BEHIND = Dashboard("kafka-behind", "Kafka: what is behind?", [
    Panel("Lag by group", [Query(f"sum by (consumergroup) ({LAG}{{SELECT}})",
                                 "{{consumergroup}}")], help=OURS),
    Panel("Groups that fall behind fastest", [Query(
        f"topk(8, sum by (consumergroup, topic) (deriv({LAG}{{SELECT}}[5m])))",
        "{{consumergroup}} {{topic}}")], help=f"Records per second. {OURS}"),
    Panel("Records read by group", [Query(
        "sum by (consumergroup) (rate(kafka_consumergroup_current_offset_sum{SELECT}"
        "[$__rate_interval]))", "{{consumergroup}}")], help=OURS),
    Panel("Members", [Query("sum by (consumergroup) (kafka_consumergroup_members{SELECT})",
                            "{{consumergroup}}")], help=OURS),
    Panel("Lag of followers", [Query("kafka_server_replicafetchermanager_maxlag{SELECT}",
                                     "{{instance}}")], help="Records, of the worst partition."),
    Panel("Under-replicated partitions by broker", [Query(
        f"{REPLICAS}_underreplicatedpartitions{{SELECT}}", "{{instance}}")]),
    Panel("Changes of in-sync replicas", [
        Query(_rate(f"{REPLICAS}_isrshrinks_total", "instance"), "{{instance}} shrinks"),
        Query(_rate(f"{REPLICAS}_isrexpands_total", "instance"), "{{instance}} expands"),
    ]),
    Panel("Compaction that is due", [Query(
        "kafka_log_logcleanermanager_max_dirty_percent{SELECT}", "{{instance}}")], unit="percent"),
])  # fmt: skip

ROLL = Dashboard("kafka-roll", "Kafka: what does a roll do?", [
    Panel("Brokers that are up", [Query(f"max({CONTROLLER}_activebrokercount{{SELECT}})",
                                        "brokers")]),
    Panel("Leaders by broker", [Query(f"{REPLICAS}_leadercount{{SELECT}}", "{{instance}}")]),
    Panel("Not led by the preferred replica", [Query(
        f"max({CONTROLLER}_preferredreplicaimbalancecount{{SELECT}})", "partitions")]),
    Panel("Under-replicated partitions", [
        Query(f"sum({REPLICAS}_underreplicatedpartitions{{SELECT}})", "under-replicated"),
        Query(f"sum({REPLICAS}_underminisrpartitioncount{{SELECT}})", "below min.insync.replicas"),
        Query(f"max({CONTROLLER}_offlinepartitionscount{{SELECT}})", "without a leader"),
    ]),
    Panel("Records in", [Query(f"sum(rate({TRAFFIC}_messagesin_total{{SELECT}}"
                               "[$__rate_interval]))", "records/s")]),
    Panel("99th percentile of produce requests", [Query(_p99("totaltimems", "Produce"),
                                                        "{{instance}}")], unit="ms"),
    Panel("Refused requests", [
        Query(f'{_rate(f"{TRAFFIC}_failedproducerequests_total", "instance")} {OR_NONE}',
              "{{instance}} produce"),
        Query(f'{_rate(f"{TRAFFIC}_failedfetchrequests_total", "instance")} {OR_NONE}',
              "{{instance}} fetch"),
    ], help="Clients try these again: a leader that moved, for example."),
    Panel("Controller epoch", [Query("max(kafka_server_raftmetrics_current_epoch{SELECT})",
                                     "epoch")], help="Grows when another controller is elected."),
])  # fmt: skip

SPARK = "odradek_pipeline"
PIPELINES = Dashboard("pipelines", "Pipelines: do they keep up?", [
    Panel("Ready", [Query(f"sum({SPARK}_ready{{PIPELINE}})")], stat=True),
    Panel("Not ready", [Query(f"sum(1 - {SPARK}_ready{{PIPELINE}})")], stat=True, red_from=1,
          help="Also pipelines that are suspended, or wait for their next run."),
    Panel("Records behind", [Query(f"sum({SPARK}_lag_records{{PIPELINE}})")], stat=True),
    Panel("Dead letters in an hour",
          [Query(f"sum(increase({SPARK}_dead_letters_total{{PIPELINE}}[1h]))")], stat=True,
          red_from=1),
    Panel("Lag", [Query(f"sum by (pipeline, topic) ({SPARK}_lag_records{{PIPELINE}})",
                        "{{pipeline}} {{topic}}")], help="Records that are not read yet."),
    Panel("Records that arrive", [Query(f"{SPARK}_input_records_per_second{{PIPELINE}}",
                                        "{{pipeline}}")], help="Per second."),
    Panel("Share of the time that batches take", [Query(
        f"{SPARK}_input_records_per_second{{PIPELINE}} / "
        f"({SPARK}_process_records_per_second{{PIPELINE}} > 0)", "{{pipeline}}")],
        unit="percentunit", help="Above 1 more arrives than is processed: the lag grows."),
    Panel("Duration of batches", [Query(f"{SPARK}_batch_seconds{{PIPELINE}}", "{{pipeline}}")],
          unit="s"),
    Panel("Since the last batch", [Query(
        f"time() - {SPARK}_last_batch_timestamp_seconds{{PIPELINE}}", "{{pipeline}}")], unit="s"),
    Panel("Age of the watermark", [Query(
        f"time() - {SPARK}_watermark_timestamp_seconds{{PIPELINE}}", "{{pipeline}}")], unit="s",
        help="Windows close this much later. A source without records holds it back."),
    Panel("Rows written", [Query(
        f"rate({SPARK}_rows_written_total{{PIPELINE}}[$__rate_interval])", "{{pipeline}}")],
        help="Per second, of sinks that say it."),
    Panel("Rows that are lost to the result", [
        Query(f"rate({SPARK}_dead_letters_total{{PIPELINE}}[$__rate_interval])",
              "{{pipeline}} dead letters"),
        Query(f"rate({SPARK}_late_rows_total{{PIPELINE}}[$__rate_interval])", "{{pipeline}} late"),
    ], help="Per second."),
    Panel("Memory of the state", [Query(f"{SPARK}_state_bytes{{PIPELINE}}", "{{pipeline}}")],
          unit="bytes"),
    Panel("Rows of the state", [Query(f"{SPARK}_state_rows{{PIPELINE}}", "{{pipeline}}")]),
    Panel("Restarts of drivers", [Query(f"{SPARK}_restarts{{PIPELINE}}", "{{pipeline}}")]),
    Panel("Rows read", [Query(
        f"rate({SPARK}_rows_read_total{{PIPELINE}}[$__rate_interval])", "{{pipeline}}")],
        help="Per second."),
], of_pipelines=True)  # fmt: skip

OF_CLUSTERS = (HEALTH, SLOW, BEHIND, ROLL)
DASHBOARDS = (*OF_CLUSTERS, PIPELINES)
