"""Mutants of fields with owners: of who owns what, and of what an apply leaves alone."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_MACHINE = "fields/test_machine.py"
_APPLY = "fields/test_apply.py"
_VERSIONS = "fields/test_versions.py"

FIELD_MUTANTS = (
    Mutant(
        "a plain write leaves what it changes with its owners",
        "fields/_forms.py",
        "if place is None or place.same(before, after):",
        "if True:",
        _MACHINE,
    ),
    Mutant(
        "an apply changes what others own",
        "fields/_apply.py",
        "        if not applied.force:\n            merged.check(after)\n",
        "",
        _MACHINE,
    ),
    Mutant(
        "what a manager gives up stays",
        "fields/_merge.py",
        "                place.put(after, empty)\n",
        "                pass\n",
        _MACHINE,
    ),
    Mutant(
        "what others own within a field goes with it",
        "fields/_merge.py",
        "                place.put(after, before)\n",
        "                pass\n",
        _MACHINE,
    ),
    Mutant(
        "what a manager owns in a newer program is forgotten",
        "fields/_merge.py",
        "sorted_paths([*self.paths, *unknown])",
        "self.paths",
        _APPLY,
    ),
    Mutant(
        "another field of a oneof stays set",
        "fields/_places.py",
        "    if group and value is not None:\n",
        "    if False:\n",
        _MACHINE,
    ),
    Mutant(
        "a request counts over any version",
        "fields/_forms.py",
        "if request is None or request.based_on != stored_version:",
        "if request is None:",
        _VERSIONS,
    ),
    Mutant(
        "a write as another version keeps all owners",
        "fields/_forms.py",
        "        if before is None or after is None:\n            return {}\n",
        "        if before is None or after is None:\n            return owners\n",
        _VERSIONS,
    ),
    Mutant(
        "a server that keeps no owners is not noticed",
        "fields/_apply.py",
        "if entry == request.text():",
        "if False:",
        _APPLY,
    ),
    Mutant(
        "a forged path may have any number of levels",
        "fields/_places.py",
        "if at == _DEEPEST:",
        "if False:",
        _VERSIONS,
    ),
    Mutant(
        "the server takes any name of a manager",
        "fields/_forms.py",
        "        check_manager(request.manager)\n",
        "",
        _VERSIONS,
    ),
)
