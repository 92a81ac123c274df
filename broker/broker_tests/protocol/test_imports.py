"""Modules that importing the protocol package must not import."""

import subprocess
import sys

HEAVY = ("hypothesis", "kio._kio_native", "kio.schema.index", "asyncio")


def test_the_broker_does_not_pay_for_kios_test_support() -> None:
    """kio imports hypothesis if it can: 0.4 s and 22 MB in a development environment."""
    code = (
        "import sys; from odradek_protocol.messages import api, fetch, produce\n"
        "from odradek_protocol.records import records\n"
        "api.encode_response(18, 4, api.Struct())\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"


def test_the_client_needs_neither_asyncio_nor_the_broker() -> None:
    code = (
        "import pkgutil, sys, importlib, odradek_protocol.client as client\n"
        "for found in pkgutil.walk_packages(client.__path__, client.__name__ + '.'):\n"
        "    importlib.import_module(found.name)\n"
        f"print([name for name in {(*HEAVY, 'odradek_broker', 'cramjam')} if name in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"


def test_hypothesis_can_be_imported_afterwards() -> None:
    code = "import odradek_protocol.error_codes; import hypothesis.strategies"
    subprocess.run([sys.executable, "-c", code], check=True)
