"""The table of APIs: complete, and consistent with the handler modules."""

from pathlib import Path

from odradek_broker import handlers
from odradek_broker.handlers import registry
from odradek_broker.handlers.access_rules import RULES
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.settings import Settings
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
    advertised = {entry.api_key for entry in apis.advertised_with_telemetry}
    internal = {key for key, handler in apis.handlers.items() if handler.internal}
    assert advertised | internal == set(apis.handlers)
    assert not advertised & internal


def test_two_brokers_of_one_process_do_not_share_a_table() -> None:
    one, other = registry.build_apis(Metrics()), registry.build_apis(Metrics())
    one.advertised.clear()
    assert other.advertised


def test_a_controller_listener_has_the_apis_of_kafkas_controllers() -> None:
    """As `ApiMessageType.listeners()` of kafka-clients 4.3.1 says, without those we lack."""
    of_kafka = {1, 17, 18, 19, 20, *range(29, 34), *range(36, 42), *range(43, 47), *range(49, 61)}
    of_kafka |= {62, 63, 64, 67, 70, 73, 80, 81, 82}
    lacking = {70}  # ControllerRegistration
    apis = registry.build_apis(Metrics())
    assert set(apis.for_controllers) == of_kafka - lacking
    listeners = Settings(
        {
            "listeners": "PLAINTEXT://:9092,OUTSIDE://:9094,CONTROLLER://:9093",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "controller.listener.names": "CONTROLLER",
        }
    ).listeners
    served = apis.served_on(listeners)
    assert served["CONTROLLER"] == apis.for_controllers
    assert served["PLAINTEXT"] == served["OUTSIDE"] == apis.for_clients
    assert apis.served_on(Settings({}).listeners)["PLAINTEXT"] == apis.handlers
