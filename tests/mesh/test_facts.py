"""Each fact of Consul's mesh that this app has is named by a test, or FACTS.md says what is done instead."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
FACTS = HERE.parents[1] / "examples/mesh/FACTS.md"
COUNTS = {"MT": 13, "RT": 18, "ED": 6, "PC": 5, "SP": 17, "XC": 7, "XS": 11, "LC": 9}
WEAKNESSES = {f"W-{number}" for number in range(1, 20)}
IDS = [f"{letters}-{number}" for letters, count in COUNTS.items() for number in range(1, count + 1)]
_ID = re.compile(rf"\b({'|'.join(COUNTS)}|W)-(\d+)(?: to (?:\1-)?(\d+))?\b")
_IN_NAME = re.compile(r"_(rt|ed|pc|sp|xc|xs|lc|w)(\d+)(?=_)")


def named(text: str) -> set[str]:
    """Return the facts that a text names: `MT-2`, `RT-1 to RT-5`, or in the name of a test as in `test_rt4_...`."""
    found = set()
    for letters, first, last in _ID.findall(text):
        found |= {f"{letters}-{number}" for number in range(int(first), int(last or first) + 1)}
    tests = "\n".join(re.findall(r"def (test_\w+)", text))
    return found | {f"{letters.upper()}-{number}" for letters, number in _IN_NAME.findall(tests)}


def test_every_fact_is_tested_or_explained() -> None:
    tests = [path for path in HERE.rglob("test_*.py") if path != Path(__file__)]
    tested = set().union(*(named(path.read_text()) for path in tests))
    explained = named(FACTS.read_text())
    assert [each for each in IDS if each not in tested | explained] == []
    assert (tested | explained) - set(IDS) == WEAKNESSES
    assert WEAKNESSES - explained == set()
    # Gateways and transparent proxies are not there.
    assert set(IDS) - tested == {"MT-13", "SP-12"}
