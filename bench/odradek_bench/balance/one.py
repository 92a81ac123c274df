"""One size, in a process of its own: `python -m odradek_bench.balance.one BROKERS REPLICAS SEED`.

Prints JSON: CPU seconds of the search, the peak of the process's memory, and what was found.
"""

from __future__ import annotations

import json
import resource
import sys
import time

from odradek_bench.balance.compare import bytes_moved
from odradek_operator.kafka.balance.goals import NAMES
from odradek_operator.kafka.balance.search import optimize
from odradek_testkit.skewed_clusters import skewed


def main() -> None:
    brokers, replicas, seed = (int(word) for word in sys.argv[1:4])
    cluster = skewed(brokers, replicas, seed)
    began = time.process_time()
    plan = optimize(cluster)
    print(
        json.dumps(
            {
                "brokers": brokers,
                "replicas": replicas,
                "cpu_s": round(time.process_time() - began, 2),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "steps": len(plan.steps),
                "converged": plan.converged,
                "bytes_moved": round(bytes_moved(cluster, plan.replicas), 4),
                "before": {name: round(plan.before[name], 5) for name in NAMES},
                "after": {name: round(plan.after[name], 5) for name in NAMES},
            }
        )
    )


if __name__ == "__main__":
    main()
