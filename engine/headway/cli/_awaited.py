"""The state that a command waits for, and the progress of each resource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from headway.base import did_you_mean
from headway.cli._exits import Usage
from headway.client import has_condition
from headway.resource import ConditionState, Resource, ResourceId, ResourceType

CONDITION_HELP = (
    "A condition that must be true, such as Ready. Ready=false waits for another state, teams/Ready for a certain "
    "writer."
)

_STATES = ("true", "false", "unknown")


@dataclass(frozen=True)
class Wanted:
    """The state to wait for: a condition in a state, or the absence of the resource."""

    key: str
    condition: str
    state: ConditionState
    text: str

    @classmethod
    def parse(cls, text: str, option: str, *, or_deleted: bool = False) -> Self:
        """Return the state that an option names. Raises Usage.

        ``or_deleted`` says that the option may ask for the absence of the resource.
        """
        if text == "deleted" and or_deleted:
            return cls("", "", ConditionState.UNKNOWN, text)
        name, _, state = text.partition("=")
        key, _, condition = name.rpartition("/")
        state = state.lower() or "true"
        if not condition or state not in _STATES:
            deleted = ", or 'deleted'" if or_deleted else ""
            raise Usage(f"{option} {text}: write a condition, such as Ready, Ready=false or teams/Ready{deleted}")
        return cls(key, condition, ConditionState[state.upper()], text)

    def holds(self, resource: Resource[Any] | None) -> bool:
        """Return True if the state is reached. A condition counts only if it observed the current generation."""
        if resource is None or not self.condition:
            return resource is None and not self.condition
        return has_condition(resource, self.condition, self.state, self.key)

    def now(self, resource: Resource[Any] | None) -> str:
        """Return a description of the current state."""
        if resource is None:
            return "it does not exist"
        if not self.condition:
            return "it is marked for deletion" if resource.is_deleting else "it exists"
        reported = [
            f"{key} says {each.type}={each.state.name or int(each.state)}"
            + ("" if status.observed_generation == resource.generation else " of an older generation")
            + (f" ({each.message})" if each.message else "")
            for key, status in sorted(resource.status.items())
            for each in status.conditions
            if each.type == self.condition and self.key in ("", key)
        ]
        others = {
            each.type if self.key in ("", key) else f"{key}/{each.type}"
            for key, status in resource.status.items()
            for each in status.conditions
        }
        wanted = f"{self.key}/{self.condition}" if self.key else self.condition
        return ", ".join(reported) or f"it has not been reported yet{did_you_mean(wanted, others)}"


@dataclass
class Awaited:
    """A resource, the state that it should reach, its last known state, and how often it was looked at."""

    type: ResourceType[Any]
    id: ResourceId
    wanted: Wanted
    done: bool = False
    looks: int = 0
    now: str = ""

    def holds(self, resource: Resource[Any] | None) -> bool:
        """Note the state of the resource. Return True if it is the wanted one."""
        self.looks += 1
        self.done, self.now = self.wanted.holds(resource), self.wanted.now(resource)
        return self.done

    def missing_after(self, seconds: float) -> str:
        """Return the sentence that says what has not been reached."""
        if not self.looks:
            return f"{self.id}: its state could not be read within {seconds:g} s"
        return f"{self.id}: {self.wanted.text} does not hold after {seconds:g} s: {self.now}"
