"""Tests import the broker's sources, because some of them patch modules. Brokers that they start
as processes run as users run them: compiled, if `make compile` was run. ODRADEK_COMPILED=0 or 1
applies to both.
"""

import os

import hypothesis

if "ODRADEK_COMPILED" not in os.environ:
    os.environ["ODRADEK_COMPILED"] = "0"
    import odradek_broker  # noqa: F401  # looks at the variable once, here

    del os.environ["ODRADEK_COMPILED"]

pytest_plugins = ["odradek_testkit.pytest_plugin"]

# A property holds or does not, however busy the machine is: no limit on the time of an example.
# Every run tries the same examples, so that a failure is one of the change under test; `make
# properties` looks for new ones with the profile "random". What it finds becomes an @example.
hypothesis.settings.register_profile("odradek", deadline=None, derandomize=True)
hypothesis.settings.register_profile("random", deadline=None, max_examples=500)
hypothesis.settings.load_profile("odradek")
