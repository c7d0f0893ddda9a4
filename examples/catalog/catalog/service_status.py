"""The conditions of a service."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from headway import Condition, ConditionState

_NAMED: Final = 10
"""The number of workloads that a condition names."""

_TRUE, _FALSE = ConditionState.TRUE, ConditionState.FALSE


def unmanaged() -> list[Condition]:
    """Return the conditions of a service without a selector."""
    message = "Either the workload selector was not present or contained no selection criteria."
    return [Condition(type="EndpointsManaged", state=_FALSE, reason="SelectorNotFound", message=message)]


def managed(identities: Iterable[str], outdated: Sequence[str]) -> list[Condition]:
    """Return the conditions of a service with a selector.

    Args:
        identities: the identities of its endpoints.
        outdated: the names of its workloads whose health was determined before they were changed.
    """
    message = "A valid workload selector is present within the service."
    conditions = [
        Condition(type="EndpointsManaged", state=_TRUE, reason="SelectorFound", message=message),
        _bound_identities(sorted(identities)),
    ]
    if outdated:
        conditions.append(_health_is_outdated(outdated))
    return conditions


def _bound_identities(names: Sequence[str]) -> Condition:
    state, reason, message = _FALSE, "NoWorkloadIdentitiesFound", "No associated workload identities found."
    if names:
        state, reason = _TRUE, "WorkloadIdentitiesFound"
        message = f'Found workload identities associated with this service: "{",".join(names)}".'
    return Condition(type="BoundIdentities", state=state, reason=reason, message=message)


def _health_is_outdated(names: Sequence[str]) -> Condition:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    message = f'The health of these workloads was determined before they changed: "{",".join(names[:_NAMED])}"{more}.'
    return Condition(type="HealthCurrent", state=_FALSE, reason="WorkloadsChanged", message=message)
