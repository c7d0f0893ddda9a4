"""The types that the corpus' programs manage, and what their users do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import headway
from headway import field
from headway.testing import simulation


@headway.message
class Team:
    members: list[str] = field(1)
    note: str = field(2)


@headway.message
class Account:
    login: str = field(1)
    team: str = field(2)


@dataclasses.dataclass(frozen=True)
class Case:
    """A wrong reconciler and its corrected twin, which differ by ``right`` alone.

    Attributes:
        source: where the class of bug was published.
        make: the program, by whether it is the right one.
    """

    name: str
    source: str
    make: Callable[[bool], simulation.MakeApp]
    scenario: simulation.Scenario
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
