"""The table of settings: every setting marked as honoured is read by code, and documented."""

from pathlib import Path

import odradek_broker
import odradek_protocol.security
from odradek_broker.model.config_docs import WITHOUT_EFFECT, documentation
from odradek_broker.model.config_table import BROKER_CONFIGS, TOPIC_CONFIGS, nearest

HONOURED = [*BROKER_CONFIGS.values(), *TOPIC_CONFIGS.values()]
HONOURED = [key for key in HONOURED if key.honoured]


def test_every_honoured_broker_setting_is_read_by_name_or_through_a_topic_setting() -> None:
    roots = [Path(one.__file__ or "").parent for one in (odradek_broker, odradek_protocol.security)]
    files = [path for root in roots for path in root.rglob("*.py") if path.parent.name != "model"]
    source = "".join(path.read_text() for path in files)
    through_topics = {n for key in TOPIC_CONFIGS.values() if key.honoured for n in key.synonyms}
    unread = [
        key.name
        for key in BROKER_CONFIGS.values()
        if key.honoured and key.name not in through_topics and f'"{key.name}"' not in source
    ]
    assert unread == []


def test_every_honoured_setting_has_a_sentence_and_no_other() -> None:
    assert [key.name for key in HONOURED if documentation(key.name) == WITHOUT_EFFECT] == []
    known = {key.name for key in HONOURED}
    others = BROKER_CONFIGS.keys() | TOPIC_CONFIGS.keys()
    assert [name for name in others - known if documentation(name) != WITHOUT_EFFECT] == []


def test_nearest() -> None:
    assert nearest("log.retention.hour", BROKER_CONFIGS) == "log.retention.hours"
    assert nearest("auto.create.topic.enable", BROKER_CONFIGS) == "auto.create.topics.enable"
    assert nearest("completely.unrelated", BROKER_CONFIGS) is None
