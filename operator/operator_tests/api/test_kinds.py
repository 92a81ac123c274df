"""The table of Kinds prepares its types when it is imported."""

import subprocess
import sys

PROGRAM = """
import sys
import msgspec
from odradek_api.kinds import KINDS

prepared = []
sys.setprofile(lambda frame, event, _: prepared.append(frame.f_code.co_name))
for kind in KINDS.values():
    for struct in (kind.spec, kind.status):
        try:
            msgspec.convert({}, struct)
        except msgspec.ValidationError:
            pass  # a field is required
sys.setprofile(None)
print([name for name in prepared if name == "get_class_annotations"])
"""


def test_types_are_prepared_before_threads_use_them() -> None:
    """Two simultaneous first passes of an operator sometimes crashed its process.

    In a process of its own: here other tests have prepared them.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
