"""The records of steps in a status of their resource: one condition each, under the name of the step. Pure.

| state | reason | message |
|---|---|---|
| UNKNOWN | Begun | the key that the outside was given: the effect may have happened |
| TRUE | Done | the result |
| FALSE | Failed | why the effect has certainly not happened |

A step with inputs has a digest of them after its name, so other inputs are another step.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence

from headway.base import repr_text
from headway.errors import FailedPrecondition, InvalidArgument
from headway.resource import Condition, ConditionState, ResourceId, name_problem, unicode_problem

SUFFIX = ".steps"
"""The end of the key of the status that has a controller's steps. The controller's name is before it."""

LONGEST_RESULT = 1_024
"""The maximum length of a result, in characters. `MOST_STEPS` of them fit into one status."""

MOST_STEPS = 50
"""The maximum number of a controller's steps of one resource, over all names and inputs."""

KEPT_INPUTS = 16
"""The number of inputs for which a step of one name is remembered, those that were begun last; fewer in a full status.
"""

BEGUN, DONE, FAILED = "Begun", "Done", "Failed"

Inputs = str | int | float | bytes | Sequence[str | int | float | bytes]
"""What the effect of a step depends on."""

_PLAIN = (str, int, float, bytes, bool)


def record_name(name: str, inputs: Inputs) -> str:
    """Return the name of the record of a step.

    Raises:
        InvalidArgument: the name is not valid, or an input is not plain.
    """
    if problem := name_problem("name", name):
        raise InvalidArgument(f"step {repr_text(name)}: {problem}, such as 'charge-card'")
    given = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    for each in given:
        # The text of any other value may differ from process to process.
        if type(each) not in _PLAIN:
            raise InvalidArgument(
                f"step {name!r}: input {repr_text(each)} must be a text, a number or bytes: pass the fields that the "
                "effect depends on, such as inputs=(order.data.number, order.data.amount)"
            )
    return f"{name}:{_digest(given).hex()[:32]}" if given else name


def key_of(id: ResourceId, status_key: str, record: str) -> str:
    """Return the key of a step for the outside, as a UUID: the same one whenever this incarnation enters the step."""
    return str(uuid.UUID(bytes=_digest((id.uid, status_key, record))[:16], version=5))


def checked_text(what: str, text: object) -> str:
    """Return a text for a record, or raise InvalidArgument."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{what} {repr_text(text)} must be a text, such as the id of what was made outside")
    if len(text) > LONGEST_RESULT:
        raise InvalidArgument(
            f"{what} has {len(text)} characters: it must have at most {LONGEST_RESULT}. Keep an id of what was made "
            "outside, and the rest in a resource"
        )
    if problem := unicode_problem(what, text):
        raise InvalidArgument(problem)
    return text


def find(records: Sequence[Condition], name: str) -> Condition | None:
    """Return the record of this name, or None."""
    return next((each for each in records if each.type == name), None)


def with_record(
    records: Sequence[Condition], state: ConditionState, reason: str, name: str, text: str
) -> list[Condition]:
    """Return the records with this one in place of the earlier one of its name, or at the end if it begins.

    Of a new step, the oldest of `KEPT_INPUTS` other inputs that has ended is left out, and so if the status is full.

    Raises:
        FailedPrecondition: there is no room for another step.
    """
    made = Condition(type=name, state=state, reason=reason, message=text)
    if find(records, name) is not None:
        if reason != BEGUN:
            return [made if each.type == name else each for each in records]
        # It is the one that was begun last, so others are left out before it.
        return [*(each for each in records if each.type != name), made]
    step = name.partition(":")[0]
    same = [each for each in records if each.type.partition(":")[0] == step]
    ended = [each for each in same if each.state != ConditionState.UNKNOWN]
    if len(same) >= KEPT_INPUTS and not ended:
        raise FailedPrecondition(
            f"step {step!r} was begun with {len(same)} other inputs, and the outcome of each is unknown: enter it "
            "again with these inputs, and ask the outside"
        )
    if ended and (len(same) >= KEPT_INPUTS or len(records) >= MOST_STEPS):
        records = [each for each in records if each is not ended[0]]
    if len(records) >= MOST_STEPS:
        raise FailedPrecondition(
            f"step {step!r}: the resource has {len(records)} steps of this controller, at most {MOST_STEPS}, and none "
            "of this name that has ended and could be left out: use fewer names, each with inputs=, or a resource of "
            "its own for each effect"
        )
    return [*records, made]


def _digest(values: tuple[object, ...]) -> bytes:
    return hashlib.sha256(repr(values).encode()).digest()
