"""Tests import the broker's sources, which some of them patch; brokers that they start as processes
run as users run them: compiled, if `make compile` was run. ODRADEK_COMPILED=0 or 1 holds for both.
"""

import os

if "ODRADEK_COMPILED" not in os.environ:
    os.environ["ODRADEK_COMPILED"] = "0"
    import odradek_broker  # noqa: F401  # looks at the variable once, here

    del os.environ["ODRADEK_COMPILED"]
