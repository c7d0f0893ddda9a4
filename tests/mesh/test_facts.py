"""Each fact of Consul's mesh that this app has is named by a test, or FACTS.md says what is done instead."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
FACTS = HERE.parents[1] / "examples/mesh/FACTS.md"
COUNTS = {"MT": 13}
IDS = [f"{letters}-{number}" for letters, count in COUNTS.items() for number in range(1, count + 1)]
_ID = re.compile(rf"\b({'|'.join(COUNTS)})-(\d+)\b")


def named(text: str) -> set[str]:
    """Return the facts that a text names."""
    return {f"{letters}-{number}" for letters, number in _ID.findall(text)}


def test_every_fact_is_tested_or_explained() -> None:
    tests = [path for path in HERE.rglob("test_*.py") if path != Path(__file__)]
    tested = set().union(*(named(path.read_text()) for path in tests))
    explained = named(FACTS.read_text())
    assert [each for each in IDS if each not in tested | explained] == []
    assert (tested | explained) - set(IDS) == set()
    # The type of gateways is not there.
    assert set(IDS) - tested == {"MT-13"}
