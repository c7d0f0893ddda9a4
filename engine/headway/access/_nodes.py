"""YAML nodes with their positions, and checks of the shapes that an access file consists of.

This reader is much smaller than the reader of manifests, which this room cannot import. It suffices because the owner
of the file is trusted, and no part of it is nested deeper than a rule's verbs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from headway.access._tokens import redacted
from headway.errors import ManifestError, Problem
from headway.resource import did_you_mean

if TYPE_CHECKING:
    import yaml

DEPTH_LIMIT = 20
QUOTE_IT = "a '*' that means any must be in quotes"

NULL = "tag:yaml.org,2002:null"


class Nodes:
    """The nodes of one text, and all problems found in them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._problems: list[Problem] = []

    def compose(self, text: str) -> yaml.Node | None:
        """Return the root of the text, or None after noting a problem if it is not valid."""
        # Imported lazily, because it takes long, and a program without an access file does not need it.
        import yaml

        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            self._check_bounds(yaml.parse(text, Loader=loader))
            root: yaml.Node | None = None if self._problems else yaml.compose(text, Loader=loader)
        except yaml.MarkedYAMLError as error:
            self._note(error.problem_mark or error.context_mark, "", _syntax_message(error))
            return None
        except (yaml.YAMLError, UnicodeEncodeError) as error:
            self._note(None, "", f"this is not YAML: {error}")
            return None
        if root is None and not self._problems:
            # An empty file is more likely truncated than intended, and it would lock out everyone.
            self._note(None, "", "the file is empty: to deny everything, write {}")
        return root

    def __len__(self) -> int:
        return len(self._problems)

    def add(self, node: yaml.Node, path: str, message: str) -> None:
        """Note a problem and go on."""
        self._note(node.start_mark, path, message)

    def raise_if_any(self) -> None:
        """Raise ManifestError with all problems, in the order of the text."""
        if self._problems:
            raise ManifestError(sorted(self._problems, key=lambda problem: (problem.line, problem.column)))

    def mapping(
        self, node: yaml.Node, path: str, known: Collection[str], *, required: Collection[str] = ()
    ) -> dict[str, yaml.Node]:
        """Return the values of a mapping by key. Unknown keys are noted and left out; missing ones are noted."""
        if shape(node) != "mapping":
            self.add(node, path, f"expected a mapping with any of {', '.join(known)}; got a {shape(node)}")
            return {}
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value) if shape(key) == "scalar" else f"a {shape(key)}"
            if name not in known:
                self.add(key, path, f"unknown field {name!r}{did_you_mean(name, known)}")
            elif name in found:
                self.add(key, below(path, name), "duplicate field: keep one of them")
            else:
                found[name] = value
        for name in required:
            if name not in found:
                self.add(node, path, f"{name} is required here")
        return found

    def items(self, node: yaml.Node, path: str) -> list[tuple[yaml.Node, str]]:
        """Return the items of a list, each with its path."""
        if shape(node) != "sequence":
            self.add(node, path, f"expected a list, got a {shape(node)}; write [] for an empty one")
            return []
        return [(item, f"{path}[{number}]") for number, item in enumerate(node.value)]

    def text(self, node: yaml.Node, path: str) -> str | None:
        """Return a scalar as it is written, whatever type YAML gives it: an accessor may look like a number."""
        if shape(node) != "scalar":
            self.add(node, path, f"expected a string, got a {shape(node)}")
        elif node.tag == NULL:
            self.add(node, path, "expected a string, got nothing; write '' for an empty one")
        else:
            return str(node.value)
        return None

    def _check_bounds(self, events: Any) -> None:
        """Refuse aliases, which could form loops, and nesting deep enough to overflow a reader."""
        depth = 0
        for event in events:
            kind = type(event).__name__
            depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
            if kind == "AliasEvent":
                self._note(event.start_mark, "", f"an alias is not allowed here: {QUOTE_IT}")
            elif depth > DEPTH_LIMIT:
                self._note(event.start_mark, "", f"this is nested deeper than {DEPTH_LIMIT} levels")
                return

    def _note(self, mark: Any, path: str, message: str) -> None:
        line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        # A problem is one line and appears in logs.
        sentence = " ".join(redacted(message).splitlines())
        self._problems.append(Problem(self._source, line, column, path, sentence))


def shape(node: Any) -> str:
    """Return the shape of a node: scalar, sequence or mapping. PyYAML's stubs lack its ``id``."""
    return str(node.id)


def below(path: str, key: str) -> str:
    """Return the path of ``key`` below ``path``."""
    return f"{path}.{key}" if path else key


def _syntax_message(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "it cannot be read"
    if "alphabetic or numeric" in problem:
        return f"'*' and '&' begin a name in YAML: {QUOTE_IT}"
    return f"this is not YAML: {problem}"
