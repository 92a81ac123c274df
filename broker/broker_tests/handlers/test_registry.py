"""The table of APIs: complete, and consistent with the handler modules."""

from pathlib import Path

from odradek_broker import handlers
from odradek_broker.handlers import registry
from odradek_broker.handlers.access_rules import RULES
from odradek_broker.runtime.metrics import Metrics
from odradek_protocol.messages.kio_table import APIS


def test_every_handler_module_is_in_the_table() -> None:
    (directory,) = {Path(path) for path in handlers.__path__ if "build" not in Path(path).parts}
    modules = {
        path.stem for path in directory.glob("*.py") if "\nAPI_KEY" in path.read_text("utf-8")
    }
    assert modules == set(registry.APIS)


def test_every_api_has_a_line_in_the_table_of_rights() -> None:
    assert set(RULES) == set(registry.APIS)


def test_a_module_is_named_after_its_api() -> None:
    for name, module in registry.handler_modules().items():
        assert APIS[module.API_KEY][0] == name
        assert hasattr(module, "handle") != hasattr(module, "serve"), name


def test_apis_between_brokers_are_not_advertised() -> None:
    apis = registry.build_apis(Metrics())
    advertised = {entry.api_key for entry in apis.advertised}
    internal = {key for key, handler in apis.handlers.items() if handler.internal}
    assert advertised | internal == set(apis.handlers)
    assert not advertised & internal


def test_two_brokers_of_one_process_do_not_share_a_table() -> None:
    one, other = registry.build_apis(Metrics()), registry.build_apis(Metrics())
    one.advertised.clear()
    assert other.advertised
