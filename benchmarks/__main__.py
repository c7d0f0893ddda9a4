"""``python -m benchmarks [--quick] [NAME[=SIZE] ...]``: measure, and print one table row per scenario.

A run of all scenarios takes half an hour and is written to `results.json`. With ``--quick``, most scenarios are
measured at a smaller size, by the best of at most five pairs. Those above their bound are measured again at the end.
A scenario with an explicit size, such as ``flat=100000``, is not compared with its bound.

The exit status is 1 if a bound is broken, and 2 if the arguments are invalid.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from benchmarks import (
    call,
    catalog,
    catalog_dns,
    controllers,
    etcd,
    etcd_fanout,
    etcd_memory,
    etcd_prime,
    fanout,
    flat,
    governor,
    growth,
    handles,
    history,
    http,
    importing,
    journal,
    kube,
    memory,
    memory_prime,
    noop,
    page,
    peering,
    postgres,
    postgres_fanout,
    postgres_prime,
    prime,
    projection,
    quiet,
    reconcile,
    scopes,
    share,
    sqlite,
    sqlite_one,
    sqlite_prime,
    subscribe,
    trickle,
    wire,
    work,
    write,
    xds,
    xds_change,
)
from benchmarks._harness import HEADER, PAIRS, RESULTS, NotHere, Row, line, load, measured_on, write_results

GROWTH = (*growth.ROWS, *flat.ROWS, *wire.ROWS, *fanout.ROWS, *controllers.ROWS)
SCENARIOS = {
    each.SCENARIO.name: each.SCENARIO
    for each in (
        *(prime, reconcile, work, journal, trickle, noop),
        *(memory_prime, sqlite_prime, etcd_prime, write, sqlite, sqlite_one, etcd, fanout, handles),
        *(postgres_prime, postgres, postgres_fanout),
        *(etcd_fanout, wire, subscribe),
        *(peering, page, governor),
        *(memory, etcd_memory, share, projection),
    )
} | {
    each.name: each
    for each in (
        *kube.ROWS,
        *quiet.ROWS,
        *history.ROWS,
        *scopes.ROWS,
        *http.ROWS,
        *catalog.ROWS,
        *catalog_dns.ROWS,
        *xds.ROWS,
        *xds_change.ROWS,
        *GROWTH,
    )
}
SCENARIOS |= {each.name: each for each in (*importing.ROWS, *call.ROWS)}


QUICK = "--quick"


def main(arguments: Sequence[str]) -> int:
    """Run the named scenarios, or all of them if none is named. Return the exit status."""
    quick = QUICK in arguments
    wanted = {name: size for name, _, size in (each.partition("=") for each in arguments if each != QUICK)}
    if problem := _problem(wanted, quick=quick):
        print(problem, file=sys.stderr)
        return 2
    before = load()
    print(f"{measured_on()}\n\n{HEADER}", flush=True)
    rows = []
    for name in wanted or SCENARIOS:
        scenario = SCENARIOS[name]
        if quick and not scenario.quick:
            continue
        try:
            rows.append(scenario.best_pair() if quick else scenario.run(size=int(wanted.get(name) or 0)))
        except NotHere as missing:
            print(f"{name}: not measured: {missing}", file=sys.stderr)
            continue
        # Each row is printed when it is measured, because a whole run takes minutes.
        print(line(rows[-1]), flush=True)
    if quick and not all(row.within for row in rows):
        print("above their bounds, measured again because other load may have lasted for all their pairs:", flush=True)
        rows = [SCENARIOS[row.name].best_pair() for row in rows if not row.within]
        print("\n".join(map(line, rows)), flush=True)
    if len(rows) == len(SCENARIOS) and not wanted and not quick:
        write_results(rows, before)
        print(f"\nwritten to {RESULTS.name}; the docstrings of benchmarks/*.py say what is compared")
    return _judged([row for row in rows if not wanted.get(row.name)], quick=quick)


def _problem(wanted: Mapping[str, str], *, quick: bool) -> str | None:
    """Return a sentence about the first invalid argument and its correction, or None if all are valid."""
    sizes = [size for size in wanted.values() if size and not (size.isascii() and size.isdigit() and int(size))]
    if sizes:
        return f"{sizes[0]!r} is not a valid size; write a whole number above 0: flat=100000"
    unknown = [name for name in wanted if name not in SCENARIOS]
    if unknown:
        return f"unknown scenario: {', '.join(unknown)}; expected one of {', '.join(SCENARIOS)}"
    if quick and any(wanted.values()):
        return f"{QUICK} has sizes of its own; leave {QUICK} out, or the sizes"
    if quick and (slow := [name for name in wanted if not SCENARIOS[name].quick]):
        return f"{', '.join(slow)}: not measured by {QUICK}; leave {QUICK} out"
    return None


def _judged(rows: Sequence[Row], *, quick: bool) -> int:
    """Print the broken bounds. Return the exit status."""
    broken = [row for row in rows if not row.within]
    how = f"twice in each of {PAIRS} pairs" if quick else "by the medians of its rounds"
    for row in broken:
        print(f"{row.name}: {row.ratio:.3f} is above its bound of {row.bound}, {how}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
