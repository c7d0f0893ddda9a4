"""Predicates: the changes that they pass, the changes that always pass, and combinations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headway
from headway import predicates
from headway.errors import DeclarationError
from headway.mapper import predicate
from headway.resource import DELETION_TIMESTAMP, Condition, ConditionState, pb
from tests.helpers.resources import TEAM, Team, stored


def state(version: int = 1, *, generation: int = 1, **more: Any) -> pb.Resource:
    made = stored("core", version, **more)
    made.generation = f"{generation:026d}"
    return made


def said(key: str) -> dict[str, pb.Status]:
    return {key: pb.Status(conditions=[Condition("Ready", ConditionState.TRUE)])}


OLD = state()
MARKED = {DELETION_TIMESTAMP: "2026-01-01T00:00:00Z"}
SAME = state(2)
WRITTEN = state(2, generation=2)
LONGER = state(2, generation=2, data=Team(members=["ada"]))
BLUE = state(2, generation=2, metadata={"colour": "blue"})
STATUS = state(2, status=said("teams"))
DELETING = state(2, generation=2, metadata=MARKED)

READY_MADE: list[tuple[headway.predicates.Predicate[Any], list[pb.Resource]]] = [
    (predicates.content_changed(), [WRITTEN, LONGER, BLUE]),
    (predicates.data_changed(), [LONGER]),
    (predicates.metadata_changed(), [BLUE]),
    (predicates.metadata_changed("colour"), [BLUE]),
    (predicates.metadata_changed("size"), []),
    (predicates.status_changed(), [STATUS]),
    (predicates.status_changed("teams"), [STATUS]),
    (predicates.status_changed("others"), []),
    (predicates.deletion_begun(), []),
    (predicates.all_of(predicates.content_changed(), predicates.metadata_changed()), [BLUE]),
    (predicates.any_of(predicates.data_changed(), predicates.status_changed()), [LONGER, STATUS]),
    (predicates.none_of(predicates.status_changed()), [SAME, WRITTEN, LONGER, BLUE]),
    (predicates.none_of(predicates.status_changed(), predicates.content_changed()), [SAME]),
]


@pytest.mark.parametrize(("when", "passing"), READY_MADE, ids=[each.name for each, _ in READY_MADE])
def test_ready_made_predicate_passes_its_kind_of_updates(
    when: headway.predicates.Predicate[Any], passing: list[pb.Resource]
) -> None:
    """Creations, deletions and the beginning of a deletion always pass."""
    updates = [SAME, WRITTEN, LONGER, BLUE, STATUS]
    assert [each for each in updates if when.passes(TEAM, OLD, each)] == passing
    assert when.passes(TEAM, None, OLD)
    assert when.passes(TEAM, OLD, None)
    assert when.passes(TEAM, OLD, DELETING)


def test_update_during_a_deletion_is_filtered_like_any_other() -> None:
    """Only the beginning of a deletion always passes."""
    assert not predicates.deletion_begun().passes(TEAM, DELETING, state(3, generation=3, metadata=MARKED))
    assert not predicates.status_changed().passes(TEAM, DELETING, state(3, generation=3, metadata=MARKED))


def test_own_writes_are_filtered_and_other_writes_pass() -> None:
    assert not predicates.not_own_writes().passes(TEAM, OLD, WRITTEN, True)
    assert predicates.not_own_writes().passes(TEAM, OLD, WRITTEN, False)
    assert predicates.not_own_writes().passes(TEAM, OLD, None, True)


def test_predicate_function_is_called_for_every_change() -> None:
    """The function gets the old and the new state. Either may be None, also in a combination."""
    seen: list[tuple[Any, Any]] = []

    def only_deletions(old: headway.Resource[Team] | None, new: headway.Resource[Team] | None) -> bool:
        seen.append((old and old.version, new and new.version))
        return new is None

    when = predicate("when", only_deletions)
    assert [when.passes(TEAM, *states) for states in ((None, OLD), (OLD, WRITTEN), (OLD, None))] == [False, False, True]
    assert seen == [(None, "1"), ("1", "2"), ("1", None)]
    assert not predicates.all_of(only_deletions, predicates.content_changed()).passes(TEAM, None, OLD)
    assert predicates.none_of(only_deletions).passes(TEAM, None, OLD)
    assert not predicates.none_of(only_deletions).passes(TEAM, OLD, None)
    assert when.name.endswith("only_deletions")


@pytest.mark.parametrize("answer", [None, 1, "yes"])
def test_predicate_result_that_is_not_a_bool_is_refused(answer: Any) -> None:
    """A function without a return would otherwise filter every change."""
    with pytest.raises(DeclarationError, match="must return True or False"):
        predicate("when", lambda _, __: answer).passes(TEAM, OLD, WRITTEN)


async def waits(_: object, __: object) -> bool:
    return True


MISUSES: list[tuple[str, Callable[[], object]]] = [
    ("all_of takes predicates", predicates.all_of),
    (
        "any_of must be a predicate, such as headway.predicates.content_changed(), not True",
        lambda: predicates.any_of(True),  # type: ignore[arg-type]
    ),
    (
        "none_of must be the result of predicates.content_changed()",
        lambda: predicates.none_of(predicates.content_changed),  # type: ignore[arg-type]
    ),
    ("all_of must be a plain function", lambda: predicates.all_of(waits)),  # type: ignore[arg-type]
    ("keys[0] must be a string, as in 'color', not 3", lambda: predicates.metadata_changed(3)),  # type: ignore[arg-type]
    ("keys[0] must be a string, as in 'staff/teams', not", lambda: predicates.status_changed(None)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("says", "misuse"), MISUSES, ids=[str(number) for number in range(len(MISUSES))])
def test_a_misuse_is_refused_when_it_is_declared(says: str, misuse: Callable[[], object]) -> None:
    with pytest.raises(DeclarationError) as caught:
        misuse()
    assert says in str(caught.value)
