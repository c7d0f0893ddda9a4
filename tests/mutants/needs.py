"""Mutants of what declarations can say since the catalog: needs, owners by a hook, oneofs."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_NEEDS = "access/test_needs.py"

NEED_MUTANTS = (
    Mutant(
        "a reader needs no more than the rule on the resource",
        "access/_guard.py",
        "if self._needs(id.type) is None or self._identity.reads_everything():",
        "if True:",
        _NEEDS,
    ),
    Mutant(
        "a writer needs no more than the rule on the resource",
        "access/_guard.py",
        'return resource is None or self._has_needs("write", resource)',
        "return True",
        _NEEDS,
    ),
    Mutant(
        "one of several needs is enough",
        "access/_guard.py",
        "if not allows(needed, id.type, id.partition, id.namespace, id.name):\n"
        "                    return False\n"
        "            return True",
        "if allows(needed, id.type, id.partition, id.namespace, id.name):\n"
        "                    return True\n"
        "            return needs is None",
        _NEEDS,
    ),
    Mutant(
        "a change of the rules about what is needed is not noticed",
        "access/_guard.py",
        "        if self._needs(type) is not None:\n",
        "        if False:\n",
        _NEEDS,
    ),
    Mutant(
        "a type with secrets loses its needs",
        "resource/_hooks.py",
        "return replace(hooks, validate=_in_turn(_check_secrets, hooks.validate))",
        "return Hooks(mutate=hooks.mutate, validate=_in_turn(_check_secrets, hooks.validate))",
        _NEEDS,
    ),
    Mutant(
        "an owner that a hook assigns is not checked",
        "service/_admission.py",
        "            if resource.owner != given.owner:\n                _admit_owner(access, resource, key)\n",
        "",
        "service/test_mutated_owner.py",
    ),
    Mutant(
        "the fields of a declared oneof are independent",
        "protobuf/_message.py",
        "fields[name].oneof or None",
        "None",
        "protobuf/test_declared_oneof.py",
    ),
)
