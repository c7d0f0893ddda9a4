"""The rotation of roots, as plain functions: one step at a time, and no peer ever refuses the leaf of another.

A new root is announced, so that proxies trust it. It signs when all processes report that their proxies have it, or
a stated time has passed. Then the old root is retired: it signs no more, and is removed when its last leaf has ended.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import headway
from catalog.computed import condition
from mesh.certificates.messages import Root, RootState, TrustBundle, TrustReport
from mesh.certificates.signing import Signer
from mesh.certificates.types import Settings

ROTATED: Final = "RotationComplete"
"""The type of the condition that says what a rotation waits for."""
_RENEWED_BEFORE_END: Final = 5
"""A root is rotated without a request when this part of its life is left: one fifth."""


class Step(NamedTuple):
    """What to store now.

    Attributes:
        bundle: the roots.
        condition: what the rotation waits for.
        next: the time of the next step; None if there is none.
    """

    bundle: TrustBundle
    condition: headway.Condition
    next: datetime.datetime | None


def new_root(signer: Signer, sealed_key: bytes, now: datetime.datetime) -> Root:
    """Return an announced root."""
    return Root(
        fingerprint=signer.fingerprint,
        certificate=signer.certificate,
        state=RootState.ROOT_STATE_ANNOUNCED,
        created=now,
        expires=signer.expires,
        since=now,
        sealed_key=sealed_key,
    )


def active(bundle: TrustBundle) -> Root | None:
    """Return the root that signs, or None."""
    return _in_state(bundle, RootState.ROOT_STATE_ACTIVE)


def announced(bundle: TrustBundle) -> Root | None:
    """Return the root that signs next, or None."""
    return _in_state(bundle, RootState.ROOT_STATE_ANNOUNCED)


def step(
    bundle: TrustBundle,
    settings: Settings,
    reports: Sequence[TrustReport],
    now: datetime.datetime,
    make_root: Callable[[], Root],
) -> Step:
    """Return the next step of a bundle. ``make_root`` is called if another root is needed.

    Args:
        bundle: the roots as they are.
        settings: the times, and the rotation that is asked for.
        reports: the reports of all processes.
        now: the time.
        make_root: makes an announced root.
    """
    made = dataclasses.replace(
        bundle, leaf_lifetime=settings.leaf_lifetime, trusted_after=settings.trusted_after, roots=list(bundle.roots)
    )
    signing, following = active(made), announced(made)
    if signing is None:
        # No proxy has a leaf yet, so there is nothing to wait for.
        made.roots = [_moved(following or make_root(), RootState.ROOT_STATE_ACTIVE, now)]
        made.rotation = settings.rotation
        return _idle(made, now)
    if following is not None:
        return _announced(made, signing, following, settings=settings, reports=reports, now=now)
    retired = _in_state(made, RootState.ROOT_STATE_RETIRED)
    if retired is not None:
        assert retired.since is not None
        until = retired.since + settings.removed_after
        if now < until:
            text = f"the old root {_short(retired)} is trusted until {_text(until)}, when its last leaf has ended"
            return Step(made, condition(ROTATED, False, text, "OldRootTrusted"), until)
        made.roots = [each for each in made.roots if each is not retired]
    elif settings.rotation != made.rotation or now >= _due(signing):
        made.roots.append(make_root())
        made.rotation = settings.rotation
        return _announced(made, signing, made.roots[-1], settings=settings, reports=reports, now=now)
    return _idle(made, now)


def _announced(
    made: TrustBundle,
    signing: Root,
    following: Root,
    *,
    settings: Settings,
    reports: Sequence[TrustReport],
    now: datetime.datetime,
) -> Step:
    assert following.since is not None
    until = following.since + settings.trusted_after
    fresh = [each for each in reports if is_fresh(each, settings.trusted_after, now)]
    having = sum(following.fingerprint in each.fingerprints for each in fresh)
    if now < until and (not fresh or having < len(fresh)):
        text = (
            f"the new root {_short(following)} does not sign yet: {having} of {len(fresh)} processes report that all "
            f"of their proxies trust it; it signs when all do, and at the latest at {_text(until)}"
        )
        return Step(made, condition(ROTATED, False, text, "WaitingForProxies"), until)
    # The key of the old root is not needed any more.
    retired = dataclasses.replace(_moved(signing, RootState.ROOT_STATE_RETIRED, now), sealed_key=b"")
    made.roots = [retired, _moved(following, RootState.ROOT_STATE_ACTIVE, now)]
    removed = now + settings.removed_after
    text = f"the old root {_short(retired)} is trusted until {_text(removed)}, when its last leaf has ended"
    return Step(made, condition(ROTATED, False, text, "OldRootTrusted"), removed)


def is_fresh(report: TrustReport, trusted_after: datetime.timedelta, now: datetime.datetime) -> bool:
    """Return True unless a report has not been renewed for the time after which proxies trust a root."""
    return report.renewed is not None and now < report.renewed + trusted_after


def _idle(made: TrustBundle, now: datetime.datetime) -> Step:
    signing = active(made)
    assert signing is not None
    assert signing.since is not None
    text = f"the root {_short(signing)} signs since {_text(signing.since)}, and no other is trusted"
    # A root whose time has come is rotated by the next step.
    return Step(made, condition(ROTATED, True, text, "OneRoot"), max(now, _due(signing)))


def _due(root: Root) -> datetime.datetime:
    assert root.created is not None
    assert root.expires is not None
    return root.expires - (root.expires - root.created) / _RENEWED_BEFORE_END


def _in_state(bundle: TrustBundle, state: RootState) -> Root | None:
    return next((each for each in bundle.roots if each.state == state), None)


def _moved(root: Root, state: RootState, now: datetime.datetime) -> Root:
    return dataclasses.replace(root, state=state, since=now)


def _short(root: Root) -> str:
    return root.fingerprint[:12]


def _text(moment: datetime.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
