"""A broker without security pays nothing for it: heavy modules are imported late."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("cryptography", "jwt", "scramp", "odradek_broker.security.sasl.oauthbearer")


def test_a_plain_broker_imports_no_heavy_module() -> None:
    code = f"""
import sys
import odradek_broker.main
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
