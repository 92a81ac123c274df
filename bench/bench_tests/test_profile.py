"""How py-spy's samples are counted."""

from odradek_bench.profile import count, top

STACKS = [
    "Runner.run (asyncio/runners.py:118) 50",
    "Runner.run (asyncio/runners.py:118);serve (handlers/produce.py:60) 6",
    "Runner.run (asyncio/runners.py:118);serve (handlers/produce.py:61);<lambda> (<string>:1) 2",
    "Thread.run (threading.py:1);Condition.wait (threading.py:320) 9",
]


def test_idle_time_is_left_out_and_lines_of_a_function_are_one() -> None:
    own, inclusive = count(STACKS)
    assert own == {"serve (handlers/produce.py)": 6, "<lambda> (<string>)": 2}
    assert inclusive["serve (handlers/produce.py)"] == 8
    assert top(own, 8)[0] == ("serve (handlers/produce.py)", 75.0)
