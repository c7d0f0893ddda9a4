"""Checks of a quota that is written: one that would limit nothing is refused, because it looks like a protection."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from headway._gen.headway.tenancy.v1 import Quota
from headway.errors import FailedPrecondition, InvalidArgument, PayloadError
from headway.protobuf import decode
from headway.quotas._keeping import rule_of
from headway.quotas._type import QUOTA, quota_problem
from headway.resource import Key, ResourceType, Scope, did_you_mean, pb
from headway.service import AccessChecks, WriteRules
from headway.storage import Backend


class QuotaRules(WriteRules):
    """The rules for writes of quotas."""

    kinds = frozenset({QUOTA.kind})

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @override
    def admit(self, access: AccessChecks, type: ResourceType[Any], key: Key, resource: pb.Resource) -> None:
        """Refuse a quota that limits nothing, and every quota in a store that keeps none."""
        if type is QUOTA:
            _check_limited_type(access, resource)
            check_kept(self._backend)


def _check_limited_type(access: AccessChecks, resource: pb.Resource) -> None:
    """Refuse a quota for a type that it would not count.

    Only the types that the caller may know are named.
    """
    try:
        quota = decode(Quota, b"" if resource.data is None else resource.data.value)
    except PayloadError:
        # The checks of every payload refuse it.
        return
    kind = (quota.group, quota.kind)
    if quota_problem(quota) or not quota.kind:
        # The hooks of the type refuse what is wrong in itself.
        return
    known = [each for each in access.registry if each.name.group != "internal" and access.knows(each.name)]
    scope = next((each.scope for each in known if each.kind == kind), None)
    text = ".".join(kind)
    if scope is None:
        hint = did_you_mean(text, {".".join(each.kind) for each in known})
        raise InvalidArgument(f"resource.data.kind: type {text} is not registered{hint}")
    if scope is Scope.CLUSTER:
        raise InvalidArgument(f"resource.data.kind: a {text} is in no partition, so no quota counts it")
    if scope is Scope.PARTITION and quota.namespace:
        raise InvalidArgument(f"resource.data.namespace: a {text} is in no namespace: leave namespace empty")


def check_kept(backend: Backend) -> None:
    """Refuse quotas in a store that does not keep them, where they would seem to protect it."""
    if rule_of(backend) is None:
        raise FailedPrecondition(
            f"{type(backend).__name__} keeps no quotas: use a store of Headway, or let this one take rules "
            "(headway.storage.TakesRules) and pass the checks of headway.testing.conformance.quotas"
        )
