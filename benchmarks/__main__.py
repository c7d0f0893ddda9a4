"""``python -m benchmarks [NAME[=SIZE] ...]``: measure, print a row of a table for each and write `results.json`.

What is measured at another size than its own, as by ``flat=100000``, is printed and not written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks import (
    controllers,
    etcd,
    etcd_fanout,
    etcd_memory,
    etcd_prime,
    fanout,
    flat,
    importing,
    memory,
    memory_prime,
    noop,
    prime,
    projection,
    reconcile,
    share,
    sqlite,
    sqlite_prime,
    trickle,
    wire,
    write,
)
from benchmarks._harness import HEADER, RESULTS, NotHere, line, write_results

SCENARIOS = {
    each.SCENARIO.name: each.SCENARIO
    for each in (
        *(prime, reconcile, trickle, noop, controllers, flat),
        *(memory_prime, sqlite_prime, etcd_prime, write, sqlite, etcd, fanout, etcd_fanout, wire),
        *(memory, etcd_memory, share, projection, importing),
    )
}


def main(arguments: Sequence[str]) -> int:
    """Run the named scenarios, all unless any is named. Returns 2 when one isn't known, or a size isn't one."""
    wanted = {name: size for name, _, size in (argument.partition("=") for argument in arguments)}
    sizes = [size for size in wanted.values() if size and not (size.isascii() and size.isdigit() and int(size))]
    if sizes:
        print(f"{sizes[0]!r} is no size; write a whole number above 0: flat=100000", file=sys.stderr)
        return 2
    unknown = [name for name in wanted if name not in SCENARIOS]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known are {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    print(HEADER, flush=True)
    rows = []
    for name in wanted or SCENARIOS:
        try:
            rows.append(SCENARIOS[name].run(size=int(wanted.get(name) or 0)))
        except NotHere as missing:
            print(f"{name}: not measured: {missing}", file=sys.stderr)
            continue
        # At once: a whole run takes minutes.
        print(line(rows[-1]), flush=True)
    write_results(row for row in rows if not wanted.get(row.name))
    print(f"\nwritten to {RESULTS.name}; what is measured against what: the docstrings of benchmarks/*.py")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
