"""Every place of a function is mutated as it should be, and each argued mutant still exists."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.equivalent import EQUIVALENT, Equivalent
from tests.mutants.generated import MODULES, PACKAGE, ROOT, Mutant, main, mutants, rate
from tests.mutants.operators import Change, changes


def made(body: str) -> list[tuple[str, str]]:
    """Return the changed lines of every change to a function with this body, before and after."""
    tree = ast.parse("def f():\n" + "\n".join(f"    {line}" for line in body.splitlines()))
    before = ast.unparse(tree)
    found = changes(tree)
    for change in found:
        with change.made():
            compile(tree, "f", "exec")
            assert change.after in "\n".join(line.strip() for line in ast.unparse(tree).splitlines())
        assert ast.unparse(tree) == before
    return [(change.before, change.after) for change in found]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a < b < c", ["x = a <= b < c", "x = a < b <= c"]),
        ("x = a is None", ["x = a is not None"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = a and b", ["x = a or b"]),
        ("x = not a", ["x = a"]),
        ("x = 7", ["x = 8"]),
        ("x = True", ["x = False"]),
        ("x = a - b", ["x = a + b"]),
        ("x = min(a, b)", ["x = max(a, b)"]),
        ("x += a", ["pass", "x -= a"]),
        ("x.y = a", ["pass"]),
        ("x[0] = a", ["pass", "x[1] = a"]),
        ("del x", ["pass"]),
        ("f(a)", ["pass"]),
        ("return a", ["return None"]),
        ("raise ValueError(f'{a + 1}')", ["pass"]),
        ("x = a", []),
        ("x = 'text'", []),
        ("'docstring'", []),
        ("return None", []),
        ("return", []),
        ("assert a > 1", []),
        ("x: list[1] = a", []),
        ("x = f'{a + 1}'", []),
        ("x = 1.5", []),
    ],
)
def test_statement_is_changed_in_every_small_way(line: str, expected: list[str]) -> None:
    assert [after for _, after in made(line)] == expected


def test_condition_is_negated() -> None:
    """Unless its comparison can be."""
    assert made("if a:\n    b()") == [("if a:", "if not a:"), ("b()", "pass")]
    assert made("while a == b:\n    continue") == [("while a == b:", "while a != b:"), ("continue", "pass")]
    assert made("x = [a for a in b if a]") == [("x = [a for a in b if a]", "x = [a for a in b if not a]")]


def test_only_bodies_of_functions_are_changed() -> None:
    """Defaults, decorators and bodies of classes run when the module is imported."""
    text = "X = 1\n@deco(1)\ndef f(a=1): return a\nclass C:\n    y = 1\n    def g(self): return self.y"
    assert [(each.function, each.line, each.after) for each in changes(ast.parse(text))] == [
        ("f", 3, "return None"),
        ("C.g", 6, "return None"),
    ]


@pytest.mark.parametrize("module", MODULES)
def test_modules_and_their_tests_exist(module: str) -> None:
    assert (PACKAGE / module).exists()
    for tests in MODULES[module]:
        assert (ROOT / "tests" / tests.partition(" ")[0]).exists()


@pytest.mark.parametrize("module", sorted({each.module for each in EQUIVALENT}))
def test_equivalent_mutants_still_exist(module: str) -> None:
    """One whose code has changed must be argued anew."""
    possible = [each.change for each in mutants([module])]
    known = {Equivalent(module, each.function, each.before, each.after) for each in possible}
    assert [each for each in EQUIVALENT if each.module == module and each not in known] == []


def test_rate_leaves_out_equivalent_mutants() -> None:
    module, function, before, after = next(iter(EQUIVALENT))

    def mutant(after: str) -> Mutant:
        node = ast.Pass()
        return Mutant(module, Change(function, 7, before, after, node, "", None, node), ast.Module([], []))

    survivors = [mutant(after), mutant("another")]
    assert rate("x", 10, survivors) == "x: 8 of 10 killed, 1 equivalent, 1 survived: 88.9%"
    assert rate("x", 1, survivors[:1]) == "x: 0 of 1 killed, 1 equivalent, 0 survived: 100.0%"
    text = str(survivors[0]).splitlines()
    assert text[0] == f"engine/headway/{module}:7 in {function}"
    assert text[1] == f"  - {before}".splitlines()[0]


def test_words_that_no_module_has_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "no module has any of these words in its name: nonsense" in capsys.readouterr().out
