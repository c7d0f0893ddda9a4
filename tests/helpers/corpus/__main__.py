"""The kill rate: the wrong reconcilers that the simulation finds, with the fault and the time, and the twins that pass.

Times are seconds of processor time.

python -m tests.helpers.corpus [NAME ...]
"""

from __future__ import annotations

import importlib
import sys
import time

from headway.testing import simulation
from tests.helpers.corpus.staff import CASES

MODULES = ("answers", "loops", "memory", "order")
for each in MODULES:
    importlib.import_module(f"tests.helpers.corpus.{each}")


def main(names: list[str]) -> int:
    """Print a line for each case. Return 1 if a wrong reconciler is missed or a right one is refuted."""
    cases = [case for name, case in sorted(CASES.items()) if not names or name in names]
    found = passed = 0
    print(f"{'wrong reconciler':<28} {'found by':<36} {'s':>5}   its twin")
    for case in cases:
        began = time.process_time()
        by = "MISSED"
        try:
            case.explore(right=False, seconds=600)
        except simulation.Refuted as refuted:
            by, found = str(refuted.plan), found + 1
        took = time.process_time() - began
        began = time.process_time()
        try:
            explored = case.explore(right=True, seconds=600)
        except simulation.Refuted as refuted:
            twin = f"REFUTED by {refuted.plan}: {refuted.findings[0]}"
        else:
            twin, passed = f"passes {len(explored.runs)} runs in {time.process_time() - began:.0f} s", passed + 1
        print(f"{case.name:<28} {by:<36} {took:5.1f}   {twin}", flush=True)
    print(f"{found} of {len(cases)} wrong reconcilers found, {passed} of {len(cases)} twins passed")
    return 0 if found == passed == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
