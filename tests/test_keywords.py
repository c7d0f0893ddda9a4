"""A misspelled or missing argument of a declaration is refused, and the error has the right name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import headway
from headway import indexes, mappers, predicates, sources
from headway.errors import DeclarationError
from headway.protobuf import field, message
from headway.testing import simulation


@message
class Team:
    note: str = field(1)


APP = headway.App("staff")
TEAM = APP.type("staff", "v1", "Team", Team)
# Type checkers refuse these calls by themselves.
app: Any = APP
hw: Any = headway

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: app.timer(TEAM, interval=5),
        r"app\.timer\(\): unknown option 'interval'; known: .*every.*missing .*'every'",
    ),
    (lambda: app.timer(TEAM, evry=5), r"app\.timer\(\): unknown option 'evry'; did you mean 'every'\?"),
    (lambda: app.timer(TEAM), r"app\.timer\(\): missing a required (keyword-only )?argument: 'every'"),
    (lambda: app.daemon(finaliser=True), r"app\.daemon\(\): unknown option 'finaliser'; did you mean 'finalizer'\?"),
    (
        lambda: app.type("staff", "v1", "Other", Team, hook=None),
        r"app\.type\(\): unknown option 'hook'; did you mean 'hooks'\? The form is: TEAM = app\.type\(",
    ),
    (lambda: app.type("staff", "v1", "Other"), r"app\.type\(\): missing a required argument: 'payload'"),
    (
        lambda: app.converter(TEAM, TEAM, upp=1, down=2),
        r"app\.converter\(\): unknown option 'upp'; did you mean 'up'\?",
    ),
    (lambda: hw.Hooks(mutat=print), r"Hooks\(\): unknown option 'mutat'; did you mean 'mutate'\?"),
    (lambda: hw.Hooks(print), r"Hooks\(\): too many positional arguments"),
    (lambda: hw.message(reservd={}), r"message\(\): unknown option 'reservd'; did you mean 'reserved'\?"),
    (lambda: hw.sources.every(60, jiter=0.2), r"^sources\.every\(\): unknown option 'jiter'; did you mean 'jitter'\?"),
    (lambda: hw.sharded(shard=4), r"sharded\(\): unknown option 'shard'; did you mean 'shards'\?"),
    (lambda: hw.sharded(4), r"sharded\(\): too many positional arguments"),
    (lambda: hw.Backoff(maximun=4), r"Backoff\(\): unknown option 'maximun'; did you mean 'maximum'\?"),
    (lambda: hw.open_engine("memory:", netwrk=None), r"unknown option 'netwrk'; did you mean 'network'\?"),
    (
        lambda: hw.Network(lissen=[]),
        r"^Network\(\): unknown option 'lissen'; did you mean 'listen'\? The form is: network=headway\.Network\(",
    ),
    (lambda: hw.Timing(leese_ttl=5), r"^Timing\(\): unknown option 'leese_ttl'; did you mean 'lease_ttl'\?"),
    (
        lambda: hw.open_workers("x:1", proces="a"),
        r"unknown option 'proces'; did you mean 'process'\?",
    ),
    (lambda: hw.connect("x:1", tokn="a"), r"connect\(\): unknown option 'tokn'; did you mean 'token'\?"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_invalid_argument_is_refused_with_the_right_name(call: Callable[[], Any], message: str) -> None:
    """The error is also a TypeError, as Python's own would be."""
    with pytest.raises(DeclarationError, match=message) as caught:
        call()
    assert isinstance(caught.value, TypeError)


async def scenario(_: simulation.World) -> None:
    """Do nothing."""


@pytest.mark.parametrize("function", ["explore", "explored"])
def test_setting_of_an_exploration_is_refused_with_the_right_name(function: str) -> None:
    given = (APP, scenario)[: 2 if function == "explore" else 1]
    with pytest.raises(
        DeclarationError, match=rf"^{function}\(\): unknown option 'proceses'; did you mean 'processes'\?"
    ):
        getattr(simulation, function)(*given, proceses=2)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"secrt": True}, r"field\(\) takes no secrt=True; did you mean 'secret'\?$"),
        (
            {"default": "x"},
            r"field\(\) takes no default='x'; an unset field has proto3's default; for a field that may",
        ),
    ],
)
def test_option_of_a_field_is_refused_with_the_right_name(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(DeclarationError, match=hint):

        @message
        class Refused:
            note: str = hw.field(1, **options)


# These functions are called in a running program and do not declare anything.
CALLS = {"graph", "hold_lease", "requeue_after", "requeue_now", "until", "until_condition", "until_gone"}
MODULES = {"mappers": mappers, "predicates": predicates, "indexes": indexes, "sources": sources}
NAMED = {
    **{name: getattr(headway, name) for name in dir(headway)},
    **{f"App.{name}": value for name, value in vars(headway.App).items()},
}
for of, module in MODULES.items():
    NAMED |= {f"{of}.{name}": value for name, value in vars(module).items()}
DECLARING = {
    name: value
    for name, value in NAMED.items()
    if inspect.isfunction(value) and not name.rpartition(".")[2].startswith("_") and name not in CALLS | {"field"}
}


@pytest.mark.parametrize("name", [name for name in DECLARING if name != "App.controller"])
def test_every_declaring_function_names_a_misspelled_argument(name: str) -> None:
    """The error begins with the public name. A new function is included.

    `field` and `App.controller` have their own messages about the whole declaration.
    """
    named = re.escape(name.replace("App.", "app."))
    with pytest.raises(DeclarationError, match=rf"^{named}\(\): unknown option 'mispelled'"):
        DECLARING[name](mispelled=1)


def test_signatures_are_unchanged() -> None:
    """`help` and editors show the original signature, and arguments can be passed by name."""
    assert list(inspect.signature(headway.Hooks).parameters) == ["mutate", "validate", "needs"]
    assert list(inspect.signature(headway.sources.every).parameters) == ["seconds", "keys", "jitter"]
    assert sources.every.__name__ == "every"
