"""``python -m benchmarks [NAME ...]``: measure, print a table and write `results.json`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks import fanout, importing, memory, prime, projection, reconcile, share, trickle, wire, write
from benchmarks._harness import RESULTS, table, write_results

SCENARIOS = {
    each.SCENARIO.name: each.SCENARIO
    for each in (prime, reconcile, trickle, write, fanout, wire, memory, share, projection, importing)
}


def main(arguments: Sequence[str]) -> int:
    """Run the named scenarios, all unless any is named. Returns 2 when one isn't known."""
    unknown = [name for name in arguments if name not in SCENARIOS]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known are {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    rows = []
    for name in arguments or SCENARIOS:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        rows.append(SCENARIOS[name].run())
    print(table(rows))
    write_results(rows)
    print(f"\nwritten to {RESULTS.name}; what is measured against what: the docstrings of benchmarks/*.py")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
