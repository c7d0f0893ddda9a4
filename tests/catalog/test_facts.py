"""Each fact of Consul's catalog is named by a test, or FACTS.md says what is done instead."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
FACTS = HERE.parents[1] / "examples/catalog/FACTS.md"
COUNTS = {"T": 26, "WS": 5, "NH": 5, "WH": 5, "EP": 14, "FO": 9, "TP": 8, "EX": 9, "W": 28}
IDS = [f"{letters}-{number}" for letters, count in COUNTS.items() for number in range(1, count + 1)]
_LETTERS = "|".join(sorted(COUNTS, key=len, reverse=True))
_ID = re.compile(rf"\b({_LETTERS})-(\d+)(?: to (?:\1-)?(\d+))?\b")
_IN_NAME = re.compile(rf"def test_({_LETTERS})(\d+)_".lower())


def named(text: str) -> set[str]:
    """Return the facts that a text names: `T-2`, `EP-1 to EP-3`, or in the name of a test as in `test_fo4_...`."""
    found = set()
    for letters, first, last in _ID.findall(text):
        found |= {f"{letters}-{number}" for number in range(int(first), int(last or first) + 1)}
    return found | {f"{letters.upper()}-{number}" for letters, number in _IN_NAME.findall(text)}


def test_every_fact_is_tested_or_explained() -> None:
    tests = [path for path in HERE.rglob("test_*.py") if path != Path(__file__)]
    tested = set().union(*(named(path.read_text()) for path in tests))
    explained = named(FACTS.read_text())
    assert [each for each in IDS if each not in tested | explained] == []
    assert (tested | explained) - set(IDS) == set()
    # The weaknesses are what may be explained alone. The rest has a test.
    assert {each for each in set(IDS) - tested if not each.startswith("W-")} == set()


def test_names_of_facts_are_found() -> None:
    assert named("T-2 and EP-1 to EP-3, W-7 to 9") == {"T-2", "EP-1", "EP-2", "EP-3", "W-7", "W-8", "W-9"}
    assert named("def test_fo4_port() -> None:\nw1 = 2") == {"FO-4"}
