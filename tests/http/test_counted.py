"""Limits on calls over HTTP count a request before its body is received, because reading one takes time."""

from __future__ import annotations

from typing import Literal

import pytest

from headway.access import Access, Authorizer, Limit, Policy, TokenSet, new_token
from tests.http.kit import ALL_TEAMS, CORE, TEAMS, bearing, serving

BODIES = {"invalid": b"{", "unknown field": b'{"data": {"x": 1}}', "not text": b"\xff"}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    ("method", "path", "category"),
    [("PUT", CORE, "write"), ("PATCH", CORE, "read"), ("PUT", f"{CORE}/status/a?uid=x", "write")],
)
async def test_request_with_an_invalid_body_counts(
    method: str, path: str, category: Literal["read", "write"], body: str
) -> None:
    """The second one is refused, whatever it holds. Before, no limit held a caller of invalid bodies."""
    text, token = new_token(["some"])
    limit = Limit(name="few", categories=[category], per=["caller", "namespace"], per_second=0.001, burst=1)
    access = Authorizer(Access([Policy("some", [ALL_TEAMS])], TokenSet([token]), limits=[limit]))
    async with serving(access) as api:
        codes = []
        for where in (path, path, path + ("&" if "?" in path else "?") + "ns=other"):
            answer = await api.http.request(method, where, content=BODIES[body], headers=bearing(text))
            codes.append(answer.status_code)
        assert codes == [400, 429, 400]


@pytest.mark.parametrize("path", [CORE, TEAMS, f"{TEAMS}?page_size=1"])
async def test_read_beyond_a_limit_is_429_with_the_time_after_which_to_repeat_it(path: str) -> None:
    """A list is refused with 400 only if it is too large, because the same request would be refused again."""
    text, token = new_token(["some"])
    limit = Limit(name="few", categories=["read"], per=["caller"], per_second=0.001, burst=1)
    access = Authorizer(Access([Policy("some", [ALL_TEAMS])], TokenSet([token]), limits=[limit]))
    async with serving(access) as api:
        await api.http.get(CORE, headers=bearing(text))
        refused = await api.http.get(path, headers=bearing(text))
        assert (refused.status_code, refused.json().get("reason")) == (429, "LIMITED")
        assert 900 <= int(refused.headers["retry-after"]) <= 1000
