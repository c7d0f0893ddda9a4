"""What the rules of commits cost, and when a store asks them, with the rule of quotas."""

from __future__ import annotations

import weakref

from headway.quotas import QUOTA, QuotaRule, rule_of
from headway.storage import MemoryBackend, ResourceTables, Rules, TableContent, copy_store
from headway.testing.conformance import put, thing
from headway.testing.conformance.quotas import quota


async def test_what_a_quota_counts_is_not_kept_alive_by_its_count() -> None:
    """The history has a bound, and what was replaced before must be free."""
    async with MemoryBackend(max_changes=10) as backend:
        rule_of(backend)
        await put(backend, quota(resources=3))
        seen: list[weakref.ref[object]] = []
        one, version = thing("one"), ""
        for number in range(200):
            changed = thing("one", "x" * number)
            changed.id = one.id
            await put(backend, changed, version)
            version = changed.version
            seen.append(weakref.ref(changed))
            del changed
        assert sum(each() is not None for each in seen) < 30


async def test_store_that_keeps_quotas_is_copied_to_with_more_than_they_allow() -> None:
    """A quota may be lowered below its use, and the target may keep quotas during the copy."""
    async with MemoryBackend() as source, MemoryBackend() as target:
        behind_quotas = ("zoo", "Animal")
        for name in "abc":
            await put(source, thing(name, kind=behind_quotas))
        await put(source, quota(resources=2))
        rule_of(target)
        copied = await copy_store(source, target)
        assert copied.resources[behind_quotas] == 3


def test_rule_that_has_not_begun_is_not_asked() -> None:
    """It was added while a thread of the store makes a commit, and begins before the next one."""
    content = TableContent(ResourceTables())
    rules = Rules(content, in_thread=True)
    rules.add(QuotaRule())
    rules.begin(content)
    rules.add(QuotaRule())
    assert not rules.current
    changes = content.changes([(QUOTA.kind, ("", "", "limit"), None, quota(resources=3))])
    rules.charge(changes)
    rules.follow(changes)
    assert rules.active
