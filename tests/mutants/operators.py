"""All small changes to the functions of a module, made in its syntax tree. A test should notice each."""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
# These and their replacements are already each other's negation.
_NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_EXTREMES = {"min": "max", "max": "min"}
_DROPPED = (ast.AugAssign, ast.Delete, ast.Raise, ast.Break, ast.Continue)

# Tests need not pin the texts of errors, and assertions in the source only inform type checkers.
_TEXTS = (ast.JoinedStr, ast.Assert, ast.Raise)


class Change(NamedTuple):
    """A change at one place of a tree.

    Attributes:
        function: the qualified name of the function that it changes.
        line: where the changed statement begins.
        before: the changed lines, as `ast.unparse` writes them.
        after: the lines that replace them.
        parent, field, place: where the changed node is, and its place if the field is a list.
        new: what replaces it.
    """

    function: str
    line: int
    before: str
    after: str
    parent: ast.AST
    field: str
    place: int | None
    new: ast.AST

    @contextmanager
    def made(self) -> Iterator[None]:
        """Have the change in the tree during the block."""
        with _replaced(self.parent, self.field, self.place, self.new):
            yield


def changes(tree: ast.Module) -> list[Change]:
    """Return every change to the body of a function, in order, without those that read the same."""
    found: dict[tuple[str, int, str], Change] = {}
    for name, function in _functions(tree, ""):
        for number in range(len(function.body)):
            for change in _in_statement(name, function, number):
                found.setdefault((change.function, change.line, change.after), change)
    return list(found.values())


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")


def _in_statement(name: str, function: ast.FunctionDef | ast.AsyncFunctionDef, number: int) -> Iterator[Change]:
    statement = function.body[number]
    written = ast.unparse(statement)
    for parent, field, index, child in [(function, "body", number, statement), *_places(statement)]:
        for new in _variants(child, parent, field):
            ast.fix_missing_locations(ast.copy_location(new, child))
            with _replaced(parent, field, index, new):
                before, after = _differing(written, ast.unparse(function.body[number]))
            if before != after:
                yield Change(name, getattr(child, "lineno", statement.lineno), before, after, parent, field, index, new)


def _places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield every node below this one that may be changed, with its place."""
    if isinstance(node, _TEXTS):
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list") or isinstance(value, ast.arguments):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                yield node, field, index, child
                yield from _places(child)


def _variants(node: ast.AST, parent: ast.AST, field: str) -> Iterator[ast.AST]:
    """Yield what may stand in the place of a node."""
    if field == "test" or (field == "ifs" and isinstance(parent, ast.comprehension)):
        yield from _negated(node)
    match node:
        case ast.Compare():
            for number, operator in enumerate(node.ops):
                changed = copy.deepcopy(node)
                changed.ops[number] = _COMPARISONS[type(operator)]()
                yield changed
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        case ast.Call(func=ast.Name(name)) if name in _EXTREMES:
            yield ast.Call(ast.Name(_EXTREMES[name], ast.Load()), node.args, node.keywords)
        case ast.Return() if node.value is not None and not _is_none(node.value):
            yield ast.Return(ast.Constant(None))
        case ast.stmt() if _can_be_dropped(node):
            yield ast.Pass()
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield ast.AugAssign(node.target, _ARITHMETIC[type(node.op)](), node.value)


def _negated(test: ast.AST) -> Iterator[ast.expr]:
    if isinstance(test, ast.UnaryOp) or (isinstance(test, ast.Compare) and isinstance(test.ops[0], _NEGATED)):
        return
    assert isinstance(test, ast.expr)
    yield ast.UnaryOp(ast.Not(), test)


def _can_be_dropped(node: ast.stmt) -> bool:
    """Return True for a statement with an effect. Without an assignment to a name, the next line raises NameError."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return not all(isinstance(target, ast.Name) for target in node.targets)
    return isinstance(node, _DROPPED)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


@contextmanager
def _replaced(parent: ast.AST, field: str, index: int | None, new: ast.AST) -> Iterator[None]:
    if index is None:
        old = getattr(parent, field)
        setattr(parent, field, new)
    else:
        siblings = getattr(parent, field)
        old, siblings[index] = siblings[index], new
    try:
        yield
    finally:
        if index is None:
            setattr(parent, field, old)
        else:
            siblings[index] = old


def _differing(before: str, after: str) -> tuple[str, str]:
    """Return the lines that differ between two texts."""
    was, now = before.splitlines(), after.splitlines()
    blocks = [
        each for each in difflib.SequenceMatcher(None, was, now, autojunk=False).get_opcodes() if each[0] != "equal"
    ]
    old = [line.strip() for _, begin, end, _, _ in blocks for line in was[begin:end]]
    new = [line.strip() for _, _, _, begin, end in blocks for line in now[begin:end]]
    return "\n".join(old), "\n".join(new)
