"""A session of the page ends with the rights that it began with."""

from __future__ import annotations

import pytest

from headway.access import Access, Policy
from tests.page.kit import EVERYTHING, open_shop, rule


@pytest.mark.parametrize("undone", [False, True])
@pytest.mark.parametrize("change", ["revoked", "other policies"])
async def test_session_ends_with_the_rights_that_it_began_with(change: str, undone: bool) -> None:
    """For good, also if no request came in between. A change of other tokens does not end it."""
    async with (
        open_shop(rules={"all": [EVERYTHING], "other": [EVERYTHING]}) as running,
        running.visitor("all") as visitor,
    ):
        access = running.access
        assert access is not None
        before = access._access
        policies, [mine, _] = before.policies.values(), before.tokens
        fewer = [Policy(each.name, [rule("view")] if each.name == "all" else each.rules) for each in policies]
        access.replace(Access([*policies, Policy("further", [EVERYTHING])], [mine]))
        await visitor.learn()
        assert visitor.session["signedIn"] is True
        access.replace(Access(policies, []) if change == "revoked" else Access(fewer, before.tokens))
        if undone:
            access.replace(before)
        await visitor.learn()
        assert (visitor.session["signedIn"], visitor.session["allowed"]) == (False, False)
        assert (await visitor.http.get("/page/search?type=shop.v1.Order")).status_code in (401, 403)
        assert access.followed == 0
