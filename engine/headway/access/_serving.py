"""The guard of an engine's services, and the tasks that belong to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from headway.access._audit import Audit
from headway.access._authorizer import Authorizer
from headway.access._guard import Guarded
from headway.access._key_sources import keep_keys
from headway.events import Report
from headway.resource import Registry


async def start_guard(
    authorizer: Authorizer, registry: Registry, report: Report, nursery: trio.Nursery
) -> Callable[..., Guarded]:
    """Return a function that guards a service, as `Guarded` does. The tasks of the guard run in the nursery."""
    audit = Audit(report)
    nursery.start_soon(audit.report_rest, name="audit")
    await nursery.start(keep_keys, authorizer, report, name="keys of issuers")
    return partial(Guarded, authorizer=authorizer, registry=registry, audit=audit)
