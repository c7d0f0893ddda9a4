"""Arbitrary text loads as resources or fails with a ManifestError that has places inside the text, never otherwise."""

from hypothesis import given
from hypothesis import strategies as st

from headway.documents import Format
from headway.manifest import ManifestError, Problem, dump_all, load
from tests.manifest.messages import EVERY, REGISTRY, every

PIECES = [
    "type", "name", "data", "owner", "metadata", "App", "Every", "Choice", "Node", "fleet.v1.App", "a", "limits",
    "policy", "since", "span", "blob", "by_int", "choice", "replicas", "ports", "note", ": ", ": ", ": ", ":", "\n",
    "\n", "\n  ", "- ", "[", "]", "{", "}", ", ", "&x ", "*x", "!!str ", "!!int ", "!x ", "!!binary ", "'", '"', "|\n",
    ">-\n", "? ", "<<", "=", "~", "yes", "1", "-1", "1.5", "0x1F", "010", "1:30", "1_0", ".inf", ".nan", "1e400",
    "2024-01-01", "2024-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1s", "-9.9s",
    "---\n", "...\n", "#", "%YAML 1.1\n", "\t", "\\", "\x85", "\u2028", "\ufeff", "\ud800", "\0", "é", "😀", "==",
]  # fmt: skip


def check(text: str, format: Format | None = "YAML") -> None:
    problems: tuple[Problem, ...] | None = None
    try:
        load(text, REGISTRY, source="f", format=format)
    except ManifestError as error:
        problems = error.problems
    if problems is not None:
        assert problems
        assert all("\n" not in str(problem) for problem in problems)
        assert all(1 <= problem.line <= len(f"{text}.".splitlines()) for problem in problems)
        assert all(1 <= problem.column <= len(text) + 1 for problem in problems)


@given(st.text(), st.sampled_from(["YAML", "JSON", "HCL", None]))
def test_arbitrary_text_raises_only_manifest_error(text: str, format: Format | None) -> None:
    """Any text in any format is tried."""
    check(text, format)


@given(every, st.data())
def test_mutated_manifest_raises_only_manifest_error(payload: object, data: st.DataObject) -> None:
    """A valid manifest has a piece removed, inserted or replaced."""
    assert isinstance(payload, EVERY.payload)
    text = dump_all([EVERY.new("a", payload), EVERY.new("b")])
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 8)))
        piece = data.draw(st.sampled_from(PIECES) | st.text(max_size=3))
        text = text[:start] + piece + text[end:]
    check(text)


@given(st.sampled_from(sorted(EVERY.payload.__dataclass_fields__)), st.lists(st.sampled_from(PIECES), max_size=6))
def test_any_value_of_any_field_raises_only_manifest_error(name: str, pieces: list[str]) -> None:
    """Every field's conversion meets every kind of scalar."""
    check(f"type: Every\nname: a\ndata:\n  {name}: {''.join(pieces)}\n")
