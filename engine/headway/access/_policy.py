"""Policies: the verbs they allow on types, within a tenancy, by name prefix. Everything else is denied.

The same comparison serves single resources and whole lists. A Read names a resource. A List or WatchList names a scope:
a tenancy whose units may be ``*``, and a name prefix. A rule covers a scope only if it covers all of it: a unit ``*``
needs a rule with ``*``, and a name prefix needs a rule whose prefix is the beginning of it. So a list is either
complete or denied, and never silently reduced to a part that its caller may list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from headway.base import repr_text
from headway.errors import InvalidArgument
from headway.pauses import PAUSE
from headway.resource import TypeName, did_you_mean, name_problem, type_problem

Verb = Literal["read", "list", "watch", "write", "write_status", "delete", "observe"]
"""An operation on a resource, or on a scope (list, watch).

``observe`` asks what controllers do about it, and why they are not done.
"""

VERBS: tuple[Verb, ...] = get_args(Verb)

ANY = "*"

# The name of a group is never a verb, so that a rule never allows more than it says. No group's verbs overlap
# another's.
GROUPS: dict[str, frozenset[Verb]] = {
    "view": frozenset(("read", "list", "watch")),
    "edit": frozenset(("write", "write_status", "delete")),
    ANY: frozenset(VERBS),
}
_MEANS: dict[str, frozenset[Verb]] = {**{verb: frozenset((verb,)) for verb in VERBS}, **GROUPS}

# The maximum length of a name. Names of leases may be longer and have more characters.
MAX_PREFIX = 63
_PREFIX = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{MAX_PREFIX - 1}}}\Z")
_LEASE_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#-]{0,254}\Z")
_LEASE_MARKS = re.compile(r"[./:#]")
# Valid parts that replace `*` while the others are checked.
_STAND_INS = ("any", "v1", "Any")

Check = Callable[[object], Iterator[str]]
"""A function that yields a sentence, which names the field, for each problem with the field's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A permission that a policy grants. Only the name prefix has a default: an omitted field must not widen a rule.

    Raises InvalidArgument with all of its problems.

    Attributes:
        verbs: any of VERBS, and of the names of GROUPS.
        type: ``group.version.Kind``. Each part may be ``*``; ``*`` alone is every type.
        partition: a partition, ``*`` for any or none, or empty for types without partitions.
        namespace: a namespace, ``*`` for any or none, or empty for types without namespaces.
        name_prefix: the beginning of the names; empty for every name.
    """

    verbs: Collection[str]
    type: str
    partition: str
    namespace: str
    name_prefix: str = ""
    allowed: frozenset[Verb] = field(init=False, repr=False, compare=False)
    _type: TypeName = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields("rule", self, RULE_CHECKS)
        # The class is frozen. Tuples make two rules with a list and a tuple of the same words equal.
        object.__setattr__(self, "verbs", tuple(self.verbs))
        object.__setattr__(self, "allowed", frozenset(verb for word in self.verbs for verb in _MEANS[word]))
        object.__setattr__(self, "_type", TypeName(*_parts(self.type)))

    def concerns(self, type: TypeName) -> bool:
        """Return True if the rule applies to this type, in any tenancy and for any verb."""
        group, version, kind = self._type
        return group in (ANY, type.group) and version in (ANY, type.version) and kind in (ANY, type.kind)

    def covers(self, type: TypeName, partition: str, namespace: str, name: str) -> bool:
        """Return True if the rule applies to the whole scope, for any verb."""
        return (
            self.concerns(type)
            and self.partition in (ANY, partition)
            and self.namespace in (ANY, namespace)
            and name.startswith(self.name_prefix)
        )

    def meets(self, type: TypeName, partition: str, namespace: str, name_prefix: str) -> bool:
        """Return True if the rule applies to any part of this scope, for any verb."""
        return (
            self.concerns(type)
            and (ANY in (self.partition, partition) or self.partition == partition)
            and (ANY in (self.namespace, namespace) or self.namespace == namespace)
            and (name_prefix.startswith(self.name_prefix) or self.name_prefix.startswith(name_prefix))
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """A named set of rules. It allows a request if any of its rules does. Rules cannot revoke permissions.

    Raises InvalidArgument for an invalid name.
    """

    name: str
    rules: Collection[Rule]

    def __post_init__(self) -> None:
        check_fields("policy", self, POLICY_CHECKS)
        object.__setattr__(self, "rules", tuple(self.rules))
        given: tuple[object, ...] = tuple(self.rules)
        for each in given:
            if not isinstance(each, Rule):
                raise InvalidArgument(
                    f"policy {self.name!r}: {repr_text(each)} is not a rule: use Rule(verbs=[...], type=...)"
                )

    def allows(self, verb: Verb, type: TypeName, partition: str, namespace: str, name: str) -> bool:
        """Return True if one of the rules allows it. See ``Rights.allows``."""
        return Rights((self,)).allows(verb, type, partition, namespace, name)


class Rights:
    """The combined rules of some policies, arranged for fast checks: a stream makes one for every event."""

    __slots__ = ("_rules", "policies")

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self.policies = tuple(policies)
        rules = [rule for policy in self.policies for rule in policy.rules]
        self._rules = {verb: tuple(rule for rule in rules if verb in rule.allowed) for verb in VERBS}

    def allows(self, verb: Verb, type: TypeName, partition: str, namespace: str, name: str) -> bool:
        """Return True if a rule allows the verb on this resource, or on all of this scope.

        Args:
            verb: a verb, not a group. Unknown verbs are denied.
            type: the type.
            partition: the partition; empty for types without partitions. A scope may have ``*``.
            namespace: the namespace; empty for types without namespaces. A scope may have ``*``.
            name: the name of the resource; for a scope its name prefix, or empty for every name.
        """
        return self._of_everyone(verb, type) or any(
            rule.covers(type, partition, namespace, name) for rule in self._rules.get(verb, ())
        )

    def allow_any(self, verb: Verb, type: TypeName, partition: str, namespace: str, name_prefix: str) -> bool:
        """Return True if a rule allows the verb on any part of this scope."""
        return self._of_everyone(verb, type) or any(
            rule.meets(type, partition, namespace, name_prefix) for rule in self._rules.get(verb, ())
        )

    def narrower(self, verb: Verb, type: TypeName, partition: str, namespace: str, name_prefix: str) -> Rule | None:
        """Return the first rule that allows the verb on a part of this scope, which no rule covers; None without one.

        A request for one resource has no parts.
        """
        if verb not in ("list", "watch") and ANY not in (partition, namespace):
            return None
        for rule in self._rules.get(verb, ()):
            # A rule for types without tenancy covers nothing of a type that has one.
            of_none = (partition == ANY and not rule.partition) or (namespace == ANY and not rule.namespace)
            if not of_none and rule.meets(type, partition, namespace, name_prefix):
                return rule
        return None

    def _of_everyone(self, verb: Verb, type: TypeName) -> bool:
        """Return True if every caller with a policy may do this.

        That is to see the pauses of controllers: a worker that could not see them would wait for ever.
        """
        return type == PAUSE.name and verb in GROUPS["view"] and bool(self.policies)

    def reading(self, type: TypeName) -> list[Rule]:
        """Return the rules that allow reading resources of the type."""
        return [rule for rule in self._rules["read"] if rule.concerns(type)]

    def admit(self, type: TypeName) -> bool:
        """Return True if a rule allows any verb on the type, anywhere, or if everyone may see its resources."""
        return self._of_everyone("read", type) or self.concern(type)

    def concern(self, type: TypeName) -> bool:
        """Return True if a rule allows any verb on the type, anywhere."""
        return any(rule.concerns(type) for policy in self.policies for rule in policy.rules)


def check_fields(what: str, value: object, checks: Mapping[str, Check]) -> None:
    """Raise InvalidArgument with all problems of the fields of a value."""
    problems = [problem for name, check in checks.items() for problem in check(getattr(value, name))]
    if problems:
        raise InvalidArgument(f"{what}: {'; '.join(problems)}")


def _verb_problems(verbs: object) -> Iterator[str]:
    if isinstance(verbs, str) or not isinstance(verbs, Collection):
        yield f"verbs {verbs!r} must be a list of words, such as ['view', 'write_status']"
    elif not verbs:
        yield f"verbs is empty: use any of {', '.join(_MEANS)}"
    else:
        for word in verbs:
            if not isinstance(word, str) or word not in _MEANS:
                yield f"verbs: {word!r} is not a verb{did_you_mean(str(word), _MEANS)}"


def _type_problems(type: object) -> Iterator[str]:
    right = "use group.version.Kind, such as 'staff.v1.Team' or 'staff.*.*', or '*' for every type"
    if not isinstance(type, str):
        yield f"type must be a string, not {type!r}: {right}"
        return
    parts = _parts(type)
    if len(parts) != len(_STAND_INS):
        yield f"type {type!r} must have three parts: {right}"
        return
    whole = (stand_in if part == ANY else part for part, stand_in in zip(parts, _STAND_INS, strict=True))
    if problem := type_problem(*whole):
        yield f"type {type!r}: {problem}; or {ANY!r} for any"


def _parts(type: str) -> list[str]:
    return [ANY] * len(_STAND_INS) if type == ANY else type.split(".")


def _unit_problems(unit: str) -> Check:
    def problems(value: object) -> Iterator[str]:
        if value not in ("", ANY) and (problem := name_problem(unit, value)):
            yield f"{problem}; or {ANY!r} for any, or '' for types that have none"

    return problems


def _prefix_problems(value: object) -> Iterator[str]:
    # Characters that only names of leases contain show that a lease is meant.
    if isinstance(value, str) and _LEASE_MARKS.search(value) and _LEASE_PREFIX.match(value):
        return
    if not isinstance(value, str) or (value and not _PREFIX.match(value)):
        yield (
            f"name_prefix {value!r} is invalid: use up to {MAX_PREFIX} lower-case letters, digits and hyphens, "
            "with a letter or digit first, and for a lease / and #, too; or '' for every name"
        )


RULE_CHECKS: dict[str, Check] = {
    "verbs": _verb_problems,
    "type": _type_problems,
    "partition": _unit_problems("partition"),
    "namespace": _unit_problems("namespace"),
    "name_prefix": _prefix_problems,
}


def _policy_name_problems(value: object) -> Iterator[str]:
    if problem := name_problem("name", value):
        yield problem


POLICY_CHECKS: dict[str, Check] = {"name": _policy_name_problems}
