"""The checks of a subscription's request: its subjects, the caller's rights to each, and its position.

A resource or a topic's subject that several subjects select is delivered once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.api import MAX_SUBJECTS
from headway.errors import InvalidArgument, PermissionDenied
from headway.resource import MAX_NAME, Key, ResourceType, TypeName, pb, quoted
from headway.service import (
    AccessChecks,
    Context,
    Permissions,
    admit_id,
    admit_within,
    ask,
    check_position,
    check_text,
    resolve,
)
from headway.storage import Within
from headway.subscription import ANY_SUBJECT, MAX_SUBJECT, SubscriptionPosition, Topic, subscription_position

Type = ResourceType[Any]

LONGEST_INTERVAL_MS = 3_600_000
_DEFAULT_INTERVAL_MS = 1000
_PART = "send named, within or everything"


class SubscribePermissions(Permissions, Protocol):
    """The permissions of a subscription, in addition to the other verbs. See `Permissions` for when they are asked."""

    @property
    def caller(self) -> str:
        """The name of the caller, whose open subscriptions are counted."""
        ...

    def rights(self) -> str:
        """Return a text that changes whenever the caller's rights do. It must not reveal them."""
        ...

    def may_watch(self, type: TypeName, partition: str, namespace: str, name_prefix: str) -> bool:
        """Return True if the caller may watch the type there; ``*`` is any. `may_read` is called for each resource."""
        ...

    def may_follow(self, topic: str, subject: str) -> bool:
        """Return True if the caller may subscribe to a subject of a topic of this name, or to all of them for ``*``.

        In addition, `may_see` is called for each subject.
        """
        ...

    def may_see(self, topic: str, subject: str) -> bool:
        """Return True if a subscription may show the caller the events of a subject."""
        ...


class Part(NamedTuple):
    """A part of a type: the resources in a range, or one of them by its name."""

    within: Within
    name: str = ""

    @property
    def everything(self) -> bool:
        """True if every resource of the type belongs to it."""
        return self.within.everything and not self.name

    def matches(self, key: Key) -> bool:
        """Return True if the resource with this key belongs to it."""
        return self.within.matches(key) and (not self.name or key[2] == self.name)


class Wanted(NamedTuple):
    """A request that has passed the checks.

    Attributes:
        types: the parts of each type.
        topics: the subjects of each topic. `ANY_SUBJECT` alone stands for all of them.
        selection: identifies what is selected, and the caller's rights.
        interval: the seconds between two reports of progress.
    """

    types: list[tuple[Type, list[Part]]]
    topics: list[tuple[Topic[Any], frozenset[str]]]
    selection: str
    resume_after: SubscriptionPosition | None
    interval: float


def admit_subscription(
    context: Context,
    topics: Mapping[str, Topic[Any]],
    permissions: SubscribePermissions | None,
    request: subscribe_pb.SubscribeRequest,
) -> Wanted:
    """Check a request, and the caller's rights to all of its subjects, before anything is opened."""
    subjects = request.subjects
    if not 1 <= len(subjects) <= MAX_SUBJECTS:
        raise InvalidArgument(
            f"subjects has {len(subjects)} entries: it must have from 1 to {MAX_SUBJECTS}, such as "
            '{"type": {...}, "everything": {}}'
        )
    types: dict[TypeName, tuple[Type, list[Part]]] = {}
    followed: dict[str, set[str]] = {}
    for index, subject in enumerate(subjects):
        field = f"subjects[{index}]"
        if subject.type is not None:
            type, part = _type_part(context.access, permissions, subject, field)
            types.setdefault(type.name, (type, []))[1].append(part)
        elif subject.topic is not None:
            name = _topic_subject(topics, permissions, subject, field)
            followed.setdefault(subject.topic, set()).add(name)
        else:
            raise InvalidArgument(f"{field}: type or topic is required")
    interval = request.progress_interval_ms or _DEFAULT_INTERVAL_MS
    if interval > LONGEST_INTERVAL_MS:
        raise InvalidArgument(f"progress_interval_ms {interval} must be at most {LONGEST_INTERVAL_MS} (one an hour)")
    wanted = Wanted(
        [(type, _distinct(parts)) for type, parts in types.values()],
        [(topics[name], _narrowed(names)) for name, names in followed.items()],
        "",
        _resume_after(request.resume_after),
        interval / 1000,
    )
    return wanted._replace(selection=_selection(context, permissions, wanted))


def _type_part(
    access: AccessChecks, permissions: SubscribePermissions | None, subject: subscribe_pb.Subject, field: str
) -> tuple[Type, Part]:
    type = resolve(access, subject.type, f"{field}.type")
    if subject.named is not None:
        given = pb.Id(type=subject.type, name=subject.named.name, tenancy=subject.named.tenancy)
        _, (partition, namespace, name) = admit_id(access, given, f"{field}.named")
        # A unit that the type does not have matches any, as in a list.
        part = Part(Within(partition or "*", namespace or "*", name), name)
    elif subject.within is not None:
        within = subject.within
        part = Part(admit_within(type, within.tenancy, within.name_prefix, absent_is_any=True))
    elif subject.everything is not None:
        part = Part(admit_within(type, None, "", absent_is_any=True))
    else:
        raise InvalidArgument(f"{field}: a part of the type is required: {_PART}")
    if permissions is not None and not ask(permissions.may_watch, type.name, *part.within[:3]):
        raise PermissionDenied(f"permission denied: you may not watch {type.name} there ({field})")
    return type, part._replace(within=_any_for_missing(part.within))


def _any_for_missing(within: Within) -> Within:
    return within._replace(partition=within.partition or "*", namespace=within.namespace or "*")


def _topic_subject(
    topics: Mapping[str, Topic[Any]],
    permissions: SubscribePermissions | None,
    subject: subscribe_pb.Subject,
    field: str,
) -> str:
    name = subject.topic or ""
    if not name:
        raise InvalidArgument(f"{field}.topic is required")
    check_text(f"{field}.topic", name, MAX_NAME)
    if subject.named is not None:
        wanted = subject.named.name
        check_text(f"{field}.named.name", wanted, MAX_SUBJECT)
        if not wanted or wanted == ANY_SUBJECT:
            raise InvalidArgument(
                f"{field}.named.name {wanted!r} must be a subject of the topic; for all of them {_ALL}"
            )
        if subject.named.tenancy is not None:
            raise InvalidArgument(f"{field}.named.tenancy must be absent: a topic has no tenancy")
    elif subject.everything is not None:
        wanted = ANY_SUBJECT
    elif subject.within is not None:
        raise InvalidArgument(f"{field}.within must be absent: a topic has no tenancy; send named or everything")
    else:
        raise InvalidArgument(f"{field}: a part of the topic is required: send named or everything")
    # Before the existence of the topic is revealed.
    if permissions is not None and not ask(permissions.may_follow, name, wanted):
        raise PermissionDenied(f"permission denied: you may not subscribe to topic {quoted(name)} there ({field})")
    topic = topics.get(name)
    if topic is None:
        raise InvalidArgument(f"{field}.topic {quoted(name)} not found: no app of this engine declares it")
    if wanted == ANY_SUBJECT and not topic.wildcard:
        raise InvalidArgument(
            f"{field}: topic {name} doesn't support everything: name a subject, or declare the topic with wildcard=True"
        )
    return wanted


_ALL = "send everything"


def _distinct(parts: list[Part]) -> list[Part]:
    """Return the parts without repeats. Everything includes all others."""
    whole = next((part for part in parts if part.everything), None)
    return list(dict.fromkeys(parts)) if whole is None else [whole]


def _narrowed(subjects: set[str]) -> frozenset[str]:
    return frozenset((ANY_SUBJECT,)) if ANY_SUBJECT in subjects else frozenset(subjects)


def _resume_after(message: subscribe_pb.Position | None) -> SubscriptionPosition | None:
    if message is None:
        return None
    check_position(message.store, "resume_after.store")
    check_text("resume_after.selection", message.selection)
    if len(message.topics) > MAX_SUBJECTS:
        raise InvalidArgument(
            f"resume_after.topics has {len(message.topics)} entries: it must have at most {MAX_SUBJECTS}"
        )
    for index, each in enumerate(message.topics):
        check_text(f"resume_after.topics[{index}].topic", each.topic)
        check_text(f"resume_after.topics[{index}].incarnation", each.incarnation)
    return subscription_position(message)


def _selection(context: Context, permissions: SubscribePermissions | None, wanted: Wanted) -> str:
    """Return the digest of what is selected and of the caller's rights."""
    lines = [
        f"{type.name} {context.forms.of(type).contained} {tuple(part.within)} {part.name}"
        for type, parts in wanted.types
        for part in parts
    ]
    lines += [f"{topic.name}/{subject}" for topic, subjects in wanted.topics for subject in subjects]
    rights = "" if permissions is None else ask(permissions.rights)
    return hashlib.sha256("\n".join([rights, *sorted(lines)]).encode()).hexdigest()[:16]
