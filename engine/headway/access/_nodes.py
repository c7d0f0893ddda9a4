"""YAML text to nodes with places, and the shapes that an access file is made of.

Much smaller than the manifests' reader, which stands further down the rooms: the file is its owner's own, and nothing
in it is nested deeper than a rule's verbs.
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
QUOTE_IT = "a '*' that stands for any has to be in quotes"

NULL = "tag:yaml.org,2002:null"


class Nodes:
    """The nodes of one text, and everything that is found wrong with them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._problems: list[Problem] = []

    def compose(self, text: str) -> yaml.Node | None:
        """The root of the text, or None when it can't be read; the problem is noted then."""
        # Not needed by whoever imports headway and has no access file; it takes long to import.
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
            # More likely cut short than meant, and it would lock everybody out.
            self._note(None, "", "the file is empty: write {} for one that lets nobody in")
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
        """The values of a map by key. Keys that are not known are noted and left out; so are those that are missing."""
        if shape(node) != "mapping":
            self.add(node, path, f"a {shape(node)} stands where a map should, with any of {', '.join(known)}")
            return {}
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value) if shape(key) == "scalar" else f"a {shape(key)}"
            if name not in known:
                self.add(key, path, f"there is no field {name!r} here{did_you_mean(name, known)}")
            elif name in found:
                self.add(key, below(path, name), "this was given before: keep one of them")
            else:
                found[name] = value
        for name in required:
            if name not in found:
                self.add(node, path, f"{name} is required here")
        return found

    def items(self, node: yaml.Node, path: str) -> list[tuple[yaml.Node, str]]:
        """What a list holds, each with its path."""
        if shape(node) != "sequence":
            self.add(node, path, f"a {shape(node)} stands where a list should; write [] for an empty one")
            return []
        return [(item, f"{path}[{number}]") for number, item in enumerate(node.value)]

    def text(self, node: yaml.Node, path: str) -> str | None:
        """A text as it is written, whatever YAML takes it for: an accessor may look like a number."""
        if shape(node) != "scalar":
            self.add(node, path, f"a {shape(node)} stands where a text should")
        elif node.tag == NULL:
            self.add(node, path, "nothing stands where a text should; write '' for an empty one")
        else:
            return str(node.value)
        return None

    def _check_bounds(self, events: Any) -> None:
        """Refuse aliases, which could make loops, and depths that a reader can't follow."""
        depth = 0
        for event in events:
            kind = type(event).__name__
            depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
            if kind == "AliasEvent":
                self._note(event.start_mark, "", f"an alias can't stand here: {QUOTE_IT}")
            elif depth > DEPTH_LIMIT:
                self._note(event.start_mark, "", f"this is nested deeper than {DEPTH_LIMIT} levels")
                return

    def _note(self, mark: Any, path: str, message: str) -> None:
        line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        # A problem is one line, and goes into logs.
        sentence = " ".join(redacted(message).splitlines())
        self._problems.append(Problem(self._source, line, column, path, sentence))


def shape(node: Any) -> str:
    """What a node is, in YAML's words: a scalar, sequence or mapping. PyYAML's stubs don't know its ``id``."""
    return str(node.id)


def below(path: str, key: str) -> str:
    """The path of what stands under ``key``."""
    return f"{path}.{key}" if path else key


def _syntax_message(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "it can't be read"
    if "alphabetic or numeric" in problem:
        return f"'*' and '&' begin a name in YAML: {QUOTE_IT}"
    return f"this is not YAML: {problem}"
