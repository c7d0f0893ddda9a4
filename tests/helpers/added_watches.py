"""A watch of the accounts of a `Staff` that is added at run time, and the record of the runs that it ends."""

from __future__ import annotations

from typing import Any

import headway
from headway import events
from tests.helpers.resources import Account
from tests.helpers.staff import Staff


def watch_accounts(staff: Staff) -> headway.Watch[Any]:
    """Return a watch of accounts with a new mapper each time."""
    return headway.watch(staff.account, headway.mappers.reference(lambda account: staff.team.id(account.data.login)))


async def write_account(staff: Staff, name: str, login: str) -> None:
    await staff.engine.client.apply(staff.account.new(name, Account(login=login)))


def runs(staff: Staff) -> tuple[int, int, int]:
    """Return the number of added watches, of runs that began, and of runs that ended."""
    of = [
        [each for each in staff.events_of(kind) if each.controller == "staff/look"]  # type: ignore[attr-defined]  # all have it
        for kind in (events.WatchAdded, events.RunStarted, events.RunEnded)
    ]
    return len(of[0]), len(of[1]), len(of[2])
