"""The status of a template: whether it could be completed, and what its proxy has answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import headway
from catalog.computed import condition

KEY: Final = "consul.io/xds-controller"
"""The key of the status on templates."""
ACCEPTED: Final = "ProxyStateAccepted"
"""The type of the condition of a template that was completed and given to its proxy."""
ANSWERED: Final = "ProxyAccepted"
"""The type of the condition with the answer of the proxy."""

_SHOWN = 3
_COMPUTED = "ProxyStateReferencesComputed"
NO_STATE = "ProxyStateNil"
NO_ENDPOINTS = "ProxyStateEndpointReferenceReadError"
BAD_ENDPOINTS = "ProxyStateEndpointsNotComputed"
NO_ROOTS = "ProxyStateTrustBundleFetchFailed"
BAD_LEAF_REFERENCE = "ProxyStateLeafWatchSetupError"
NO_LEAF = "ProxyStateLeafFetchError"
EMPTY_LEAF = "ProxyStateLeafEmptyError"
NOT_PUSHED = "ProxyStatePushChangeFailed"


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with what a template refers to.

    Attributes:
        reason: the reason of its condition.
        message: what is wrong, and with what.
    """

    reason: str
    message: str


def completed(problems: Sequence[Problem]) -> headway.Condition:
    """Return the condition of a template. The first problem gives its reason."""
    if not problems:
        return condition(ACCEPTED, True, "all that the proxy needs was sent", _COMPUTED)
    text = "; ".join(each.message for each in problems[:_SHOWN])
    if len(problems) > _SHOWN:
        text += f"; and {len(problems) - _SHOWN} more"
    return condition(ACCEPTED, False, text, problems[0].reason)


def answered(rejections: Sequence[str], *, has_answered: bool) -> headway.Condition:
    """Return the condition with the answer of a proxy, in its words."""
    if rejections:
        return condition(ANSWERED, False, "; ".join(rejections), "ProxyRejectedResources")
    if has_answered:
        return condition(ANSWERED, True, "the proxy has accepted everything", "ProxyAcceptedResources")
    unknown = headway.ConditionState.UNKNOWN
    return headway.Condition(
        type=ANSWERED, state=unknown, reason="ProxyNotAnswered", message="the proxy has not answered yet"
    )
