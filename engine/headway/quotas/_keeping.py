"""The quotas of a store: it keeps them once it has their rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from headway.engine import Engine
from headway.errors import HeadwayError
from headway.quotas._limits import QuotaUse
from headway.quotas._rule import QuotaRule
from headway.storage import Backend, TakesRules, rules_of


def rule_of(backend: Backend) -> QuotaRule | None:
    """Return the rule by which a store keeps quotas, after giving it one if necessary.

    Return None if the store takes no rules. Every engine calls this. Until then, a store accepts every commit.
    """
    rules = rules_of(backend)
    return None if rules is None else rules.find(QuotaRule) or rules.add(QuotaRule())


async def list_uses(backend: Backend) -> Sequence[QuotaUse]:
    """Return all quotas of a store and their use, in order of name; none if it keeps no quotas."""
    rule = rule_of(backend)
    if rule is None:
        return ()
    await cast("TakesRules", backend).count_for_rules()
    return rule.uses()


def quotas_now(source: Engine | Backend) -> Sequence[QuotaUse]:
    """Return the quotas of an engine or a store with their use, for metrics.

    A quota appears once its use is counted: after the first write that needs room in it, or the first `list_quotas`.
    There are none if the store keeps no quotas or cannot be used, nor with `open_workers`.
    """
    backend = source.backend if isinstance(source, Engine) else source
    if backend is None:
        return ()
    try:
        backend.position  # noqa: B018  # raises if the store cannot be used
    except HeadwayError:
        return ()
    rule = rule_of(backend)
    return () if rule is None else rule.uses()
