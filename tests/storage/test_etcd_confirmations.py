"""Reads of an etcd store's revision that several tasks share."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from headway.storage.etcd._session import Confirmations


async def test_caller_waits_for_a_question_that_begins_after_its_call(nursery: trio.Nursery) -> None:
    """The answer to a question under way may be from before the call. All calls during it share the next one."""
    questions: list[trio.Event] = []
    answered: list[str] = []

    async def question() -> None:
        questions.append(trio.Event())
        await questions[-1].wait()

    async def ask(name: str) -> None:
        await confirmations.ask()
        answered.append(name)

    confirmations = Confirmations(nursery, question)
    nursery.start_soon(ask, "first")
    await wait_all_tasks_blocked()
    for name in ("second", "third"):
        nursery.start_soon(ask, name)
    await wait_all_tasks_blocked()
    assert len(questions) == 1
    questions[0].set()
    await wait_all_tasks_blocked()
    assert answered == ["first"]
    assert len(questions) == 2
    questions[1].set()
    await wait_all_tasks_blocked()
    assert sorted(answered[1:]) == ["second", "third"]
    assert len(questions) == 2
