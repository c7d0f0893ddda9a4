"""No version of a library that the project allows has a known vulnerability.

The advisories were read in November 2026; `docs/decisions/network.md` says what each is about.
"""

from __future__ import annotations

import pytest

from tests.oldest import oldest

SAFE = {
    "h2": "4.4.1",  # CVE-2025-57804, CVE-2026-71554
    "hpack": "4.2",  # CVE-2026-59980
    "h11": "0.16",  # CVE-2025-43859
    "starlette": "1.3.1",  # CVE-2025-62727, CVE-2026-48710, PYSEC-2026-248, and the limits of forms
    "joserfc": "1.7.6",  # CVE-2026-48990, CVE-2026-119284
    "hypercorn": "0.16",  # rapid resets, which cannot reach it here
    "cryptography": "50.0",  # CVE-2026-39892, and CVE-2026-69247, whose functions are not used here
    "click": "8.3.3",  # CVE-2026-7246, which its authors dispute
    "pyyaml": "5.4",  # CVE-2020-14343
}


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize("library", SAFE)
def test_oldest_version_has_no_known_vulnerability(library: str) -> None:
    assert _number(oldest()[library]) >= _number(SAFE[library])
