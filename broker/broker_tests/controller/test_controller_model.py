"""The invariants of partitions hold under random events (controller_model.py).

`python -m broker_tests.controller.test_controller_model 5000` runs more seeds.
"""

import logging
import sys
from collections.abc import Iterable, Sequence

import pytest

from broker_tests.controller.controller_model import ControllerModel
from odradek_broker.controller import active, alter_partition, brokers
from odradek_broker.controller.partition_changes import PartitionChanges, TopicRules
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.ids import (
    BrokerId,
)

STEPS = 60
SEEDS = 600


def run_seed(seed: int) -> None:
    model = ControllerModel(seed)
    try:
        model.run(STEPS)
    except Exception as error:
        trace = " ".join(model.trace)
        raise AssertionError(f"seed {seed}, after {len(model.trace)} steps: {trace}") from error


def run_seeds(seeds: Iterable[int]) -> None:
    for seed in seeds:
        run_seed(seed)


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_the_invariants_of_partitions_hold(first: int) -> None:
    run_seeds(range(first, first + 100))


# -- the model can fail ---------------------------------------------------------------------

# Where the search for a planted bug begins: a seed that found it, so that it need not be searched.
FIRST_SEED = {
    "a restarted follower joins the ISR": 149,
    "eligible although min.insync.replicas fell": 139,
}


def _ignores_broker_epochs(image: MetadataImage, isr: Sequence[BrokerId], states: object) -> bool:
    return all(broker in image.brokers and image.brokers[broker].active for broker in isr)


def _elects_nobody(image: object, live: object, *, unclean_default: object) -> list[object]:
    return []


def _keeps_the_old_incarnation(*_: object, **__: object) -> list[object]:
    return []


PLANTED = {
    "a restarted follower joins the ISR": (alter_partition, "_eligible", _ignores_broker_epochs),
    "eligible although min.insync.replicas fell": (
        active,
        "drop_where_min_isr_fell",
        lambda image, result: result,
    ),
    "an empty disk counts as the old one": (PartitionChanges, "_there", lambda *_: True),
    "last known leaders while others only sleep": (
        PartitionChanges,
        "_all_holders_lost",
        lambda *_: True,
    ),
    "unclean elections always": (TopicRules, "unclean", lambda *_: True),
    "nobody leads what came back": (brokers, "elect_where_leaderless", _elects_nobody),
    "a crash is no reason to leave the ISR": (
        brokers,
        "_end_incarnation",
        _keeps_the_old_incarnation,
    ),
    "the ISR loses its last member": (
        brokers,
        "without",
        lambda isr, gone: tuple(r for r in isr if r not in gone),
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[bug])
    logging.disable(logging.CRITICAL)
    first = FIRST_SEED.get(bug, 0)
    try:
        with pytest.raises(AssertionError, match="seed"):
            run_seeds([*range(first, SEEDS), *range(first)])
    finally:
        logging.disable(logging.NOTSET)


if __name__ == "__main__":
    run_seeds(range(SEEDS, SEEDS + int(sys.argv[1])))
    print(f"{sys.argv[1]} seeds: sound")
