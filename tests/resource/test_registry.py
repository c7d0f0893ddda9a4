"""The registry: types by name, each once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headway.errors import DeclarationError, InvalidArgument
from headway.resource import (
    EMPTIED_FINALIZER,
    NAMESPACE,
    PARTITION,
    TOMBSTONE,
    Hooks,
    Registry,
    ResourceType,
    Scope,
    TypeName,
)
from tests.helpers.declared import NOTE, NOTE_V2, TYPES, Memo, Note, registry

BUILTIN = [TOMBSTONE, PARTITION, NAMESPACE]


def test_what_is_registered_is_resolved_by_its_exact_name() -> None:
    """And is what the registry iterates over, in the order in which it came."""
    known = registry()
    assert list(known) == [*BUILTIN, *TYPES]
    for type in TYPES:
        assert known.resolve(type.name) is type
        assert type.name in known
    assert TypeName("tests", "v3", "Note") not in known


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (TypeName("tests", "v1", "Noet"), "type tests.v1.Noet is not registered; did you mean 'tests.v1.Note'?"),
        (TypeName("tests", "v3", "Note"), "type tests.v3.Note is not registered; did you mean 'tests.v"),
        (
            TypeName("acme", "v9", "Zebra"),
            "type acme.v9.Zebra is not registered; known: tenancy.v1.Namespace, tenancy.v1.Partition, tes",
        ),
    ],
)
def test_what_is_not_registered_is_refused_with_what_is(name: TypeName, said: str) -> None:
    """The name, and the one that was probably meant."""
    with pytest.raises(InvalidArgument) as caught:
        registry().resolve(name)
    assert str(caught.value).startswith(said)


def test_a_registry_has_the_types_of_headway_itself() -> None:
    """Tombstones, which are proposed to nobody, partitions and namespaces; their groups are taken."""
    said = r"^type tests\.v1\.Note is not registered; known: tenancy\.v1\.Namespace, tenancy\.v1\.Partition$"
    with pytest.raises(InvalidArgument, match=said):
        Registry().resolve(NOTE.name)
    for group in ("internal", "tenancy"):
        with pytest.raises(DeclarationError, match=f"group '{group}' is reserved by Headway; choose another"):
            Registry().register(ResourceType(group, "v1", "Note", Note))


def test_further_versions_of_partitions_and_namespaces_can_be_registered() -> None:
    """With the scope that the kind has, and under its rules: those of the type itself come after them."""
    seen: list[frozenset[str]] = []
    hooks: Hooks[Note] = Hooks(mutate=lambda unit: seen.append(unit.finalizers))
    known = Registry()
    namespace = ResourceType("tenancy", "v2beta1", "Namespace", Note, scope=Scope.PARTITION, hooks=hooks)
    known.register(namespace)
    known.register(ResourceType("tenancy", "v2beta1", "Partition", Note, scope=Scope.CLUSTER))
    assert known.resolve(TypeName("tenancy", "v2beta1", "Namespace")) is namespace
    assert namespace.hooks.mutate is not None
    assert namespace.hooks.validate is not None
    namespace.hooks.mutate(unit := namespace.new("up"))
    assert seen == [unit.finalizers] == [{EMPTIED_FINALIZER}]
    with pytest.raises(ValueError, match="the namespace 'default' always exists"):
        namespace.hooks.validate(namespace.new("default"))
    with pytest.raises(DeclarationError, match=r"scope NAMESPACE must be PARTITION, like tenancy\.v1\.Namespace"):
        known.register(ResourceType("tenancy", "v3", "Namespace", Note))


def test_every_type_of_a_program_has_a_scope() -> None:
    """Only a tombstone is where its owner was, whatever that is."""
    with pytest.raises(DeclarationError, match="scope must be CLUSTER, PARTITION or NAMESPACE"):
        Registry().register(ResourceType("tests", "v1", "Note", Note, scope=Scope.UNDEFINED))


def test_a_name_is_registered_once() -> None:
    """The second one is told of the first, and changes nothing."""
    known = registry()
    again = ResourceType("tests", "v1", "Note", Memo)
    said = r"type tests\.v1\.Note is registered already, with payload Note; use that one, or register this one under"
    with pytest.raises(DeclarationError, match=said):
        known.register(again)
    assert known.resolve(NOTE.name) is NOTE
    with pytest.raises(DeclarationError, match="is registered already"):
        known.register(NOTE)


def test_all_versions_of_a_kind_have_one_scope() -> None:
    """They share one name space."""
    known = Registry()
    known.register(NOTE)
    other = ResourceType("tests", "v2", "Note", Memo, scope=Scope.CLUSTER)
    said = r"type tests\.v2\.Note: scope CLUSTER must be NAMESPACE, like tests\.v1\.Note"
    with pytest.raises(DeclarationError, match=said):
        known.register(other)
    known.register(NOTE_V2)
    assert len(list(known)) == len(BUILTIN) + 2


@pytest.mark.parametrize("wrong", [Note, "tests.v1.Note", None])
def test_only_a_type_is_registered(wrong: object) -> None:
    """Not its payload, not its name."""
    with pytest.raises(DeclarationError, match=r"expected a headway\.ResourceType, got"):
        Registry().register(cast("Any", wrong))
