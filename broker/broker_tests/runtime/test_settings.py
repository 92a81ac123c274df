"""Settings: precedence, names, values, listeners, and overrides by topics."""

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek_broker.model.config_table import BROKER_CONFIGS, TOPIC_CONFIGS, ConfigError
from odradek_broker.model.log_config import LogConfig, TimestampType
from odradek_broker.runtime.settings import Settings
from odradek_protocol.admin_codes import ConfigSource


def load(*flags: str, env: dict[str, str] | None = None, file: Path | None = None) -> Settings:
    return Settings.load(file, env or {}, flags)


@pytest.fixture
def properties(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "server.properties"
        path.write_text(text)
        return path

    return write


class TestTable:
    def test_every_default_is_valid_and_written_back_unchanged(self) -> None:
        for key in [*BROKER_CONFIGS.values(), *TOPIC_CONFIGS.values()]:
            assert key.text_of(key.parse(key.default)) == key.default, key.name

    def test_topic_synonyms_are_broker_settings(self) -> None:
        for key in TOPIC_CONFIGS.values():
            assert set(key.synonyms) <= BROKER_CONFIGS.keys(), key.name

    def test_defaults_alone_give_the_default_log_config(self) -> None:
        assert load().log_config({}) == LogConfig()

    @pytest.mark.parametrize(
        ("name", "text", "reason"),
        [
            ("num.partitions", "0", "Value must be at least 1"),
            ("num.partitions", "many", "Not a number of type INT"),
            ("num.partitions", "2147483648", "Not a number of type INT"),
            ("num.partitions", "1_000", "Not a number of type INT"),
            ("compression.lz4.level", "18", "Value must be no more than 17"),
            ("log.cleaner.min.cleanable.ratio", "half", "Not a number of type DOUBLE"),
            ("auto.create.topics.enable", "yes", "Expected value to be either true or false"),
            ("log.cleanup.policy", "shrink", "String must be one of: compact, delete"),
            ("log.message.timestamp.type", "x", "String must be one of: CreateTime, LogAppendTime"),
        ],
    )
    def test_bad_value_is_one_line_that_names_the_setting(
        self, name: str, text: str, reason: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            load(f"{name}={text}")
        assert str(caught.value) == f"flag: Invalid value {text} for configuration {name}: {reason}"


class TestConfigProviders:
    PROVIDERS = (
        "config.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    )
    ADVERTISED = "advertised.listeners=PLAINTEXT://${env:HOST_IP}:${env:PORT}\n"

    def test_environment_variables_in_the_file(self, properties: Callable[[str], Path]) -> None:
        file = properties(self.ADVERTISED + self.PROVIDERS + "num.partitions=${env:PARTITIONS}\n")
        env = {"HOST_IP": "10.0.0.1", "PORT": "9094", "PARTITIONS": "4"}
        settings = load(file=file, env=env)
        assert settings.text("advertised.listeners") == "PLAINTEXT://10.0.0.1:9094"
        assert settings.int("num.partitions") == 4
        assert settings.warnings == ()

    def test_variables_need_a_config_provider(self, properties: Callable[[str], Path]) -> None:
        with pytest.raises(ConfigError, match=r"Not a number of type INT"):
            load(file=properties("num.partitions=${env:N}\n"), env={"N": "4"})

    def test_a_missing_variable_is_an_error(self, properties: Callable[[str], Path]) -> None:
        with pytest.raises(ConfigError) as caught:
            load(file=properties(self.PROVIDERS + "num.partitions=${env:N}\n"))
        assert str(caught.value).endswith(
            "server.properties:3: num.partitions: ${env:N}: the environment variable is not set"
        )

    def test_variables_outside_the_allow_list_are_refused(
        self, properties: Callable[[str], Path]
    ) -> None:
        allowed = "config.providers.env.param.allowlist.pattern=^P.*\n"
        text = self.PROVIDERS + allowed + "num.partitions=${env:N}\n"
        with pytest.raises(ConfigError, match="does not allow it"):
            load(file=properties(text), env={"N": "4"})


class TestSources:
    def test_file_then_environment_then_flags(self, properties: Callable[[str], Path]) -> None:
        file = properties("num.partitions=2\nlog.retention.ms=2\nfetch.max.bytes=2000\n")
        env = {"KAFKA_LOG_RETENTION_MS": "3", "KAFKA_FETCH_MAX_BYTES": "3000"}
        settings = load("fetch.max.bytes=4000", env=env, file=file)
        assert settings.int("num.partitions") == 2
        assert settings.int("log.retention.ms") == 3
        assert settings.int("fetch.max.bytes") == 4000

    def test_an_unknown_name_in_a_file_is_named_with_line_and_suggestion(
        self, properties: Callable[[str], Path]
    ) -> None:
        file = properties("# first\n\nlog.retenton.ms=1\n")
        with pytest.raises(ConfigError) as caught:
            load(file=file)
        assert str(caught.value) == (
            f"{file}:3: unknown setting log.retenton.ms; did you mean log.retention.ms?"
        )

    def test_unknown_variable_is_a_warning_because_kubernetes_sets_some(self) -> None:
        settings = load(env={"KAFKA_PORT": "tcp://10.0.0.1:9092", "KAFKA_HEAP_OPTS": "-Xmx1g"})
        assert len(settings.warnings) == 1
        assert "KAFKA_PORT" in settings.warnings[0]

    def test_known_setting_without_effect_is_a_warning(self) -> None:
        settings = load("num.io.threads=16", "num.network.threads=3")
        assert settings.warnings == ("num.io.threads is known but has no effect in Odradek yet",)

    def test_unreadable_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"absent\.properties: cannot be read: No such file"):
            load(file=tmp_path / "absent.properties")

    def test_flag_without_value(self) -> None:
        with pytest.raises(ConfigError, match="must be <setting>=<value>"):
            load("num.partitions")


class TestTogether:
    def test_node_id_or_broker_id(self) -> None:
        assert load().node_id == 1
        assert load("node.id=4").node_id == 4
        assert load("broker.id=5").node_id == 5
        with pytest.raises(ConfigError, match=r"node\.id"):
            load("node.id=4", "broker.id=5")

    def test_log_dirs_win_over_log_dir(self) -> None:
        settings = load("log.dir=/a", "log.dirs=/b,/c")
        assert settings.log_dirs == (Path("/b"), Path("/c"))
        assert settings.metadata_log_dir == Path("/b")
        assert load("metadata.log.dir=/m").metadata_log_dir == Path("/m")

    def test_retention_units(self) -> None:
        assert load("log.retention.hours=1").log_config({}).retention_ms == 3_600_000
        assert (
            load("log.retention.minutes=1", "log.retention.hours=9").log_config({}).retention_ms
            == 60_000
        )
        assert load("log.retention.ms=-5").log_config({}).retention_ms == -1
        with pytest.raises(ConfigError, match=r"log\.retention\.minutes must be unlimited"):
            load("log.retention.minutes=0")

    def test_topic_overrides(self) -> None:
        settings = load("log.segment.bytes=2000000", "log.flush.scheduler.interval.ms=77")
        config = settings.log_config(
            {
                "cleanup.policy": "compact,delete",
                "message.timestamp.type": "LogAppendTime",
                "internal.segment.bytes": "100",
            }
        )
        assert config.cleanup_compact
        assert config.cleanup_delete
        assert config.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert config.segment_bytes == 100
        assert config.flush_ms == 77
        assert settings.log_config({}).segment_bytes == 2_000_000

    def test_equal_overrides_share_one_log_config(self) -> None:
        settings = load()
        first = settings.log_config({"retention.ms": "5", "flush.ms": "6"})
        assert settings.log_config({"flush.ms": "6", "retention.ms": "5"}) is first
        settings.apply_dynamic({"log.segment.bytes": "2000000"}, {})
        again = settings.log_config({"retention.ms": "5", "flush.ms": "6"})
        assert again.segment_bytes == 2_000_000

    def test_dynamic_values_lie_on_top_and_go_again(self) -> None:
        settings = load("log.retention.ms=5", "log.cleaner.threads=1")
        settings.apply_dynamic({"log.retention.ms": "6"}, {})
        assert settings.log_config({}).retention_ms == 6
        settings.apply_dynamic({"log.retention.ms": "6"}, {"log.retention.ms": "7"})
        assert settings.int("log.retention.ms") == 7
        found = settings.synonyms(BROKER_CONFIGS["log.retention.ms"])
        assert [(synonym.text, synonym.source) for synonym in found] == [
            ("7", ConfigSource.DYNAMIC_BROKER_CONFIG),
            ("6", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            ("5", ConfigSource.STATIC_BROKER_CONFIG),
            ("168", ConfigSource.DEFAULT_CONFIG),  # log.retention.hours
        ]
        settings.apply_dynamic({}, {})
        assert settings.log_config({}).retention_ms == 5

    def test_a_bad_dynamic_value_changes_nothing(self) -> None:
        settings = load()
        with pytest.raises(ConfigError):
            settings.apply_dynamic({"log.retention.ms": "soon"}, {})
        assert settings.dynamic_default == {}
        assert settings.log_config({}) == LogConfig()
