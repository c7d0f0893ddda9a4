"""Cancel a program at each of its steps in turn, and check that nothing is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import trio
from trio.testing import wait_all_tasks_blocked


class _CancelAtStep(trio.abc.Instrument):
    """An instrument that cancels a scope just before a step of any task, counted from its creation."""

    def __init__(self, scope: trio.CancelScope, at: int) -> None:
        self._scope = scope
        self._left = at

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002  # as Trio calls it
        self._left -= 1
        if not self._left:
            self._scope.cancel()


def tasks() -> Iterator[trio.lowlevel.Task]:
    """Yield all tasks of the run but Trio's own."""
    root = trio.lowlevel.current_root_task()
    left = [root] if root is not None else []
    while left:
        task = left.pop()
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        if not task.name.startswith(("trio.", "<init>")):
            yield task


async def cancel_at_every_step(
    program: Callable[[], Awaitable[None]], check: Callable[[], object], *, most: int = 2000, ours: str = ""
) -> int:
    """Run a program again and again, and cancel it one step later each time, until it ends before that.

    After each run no task may be left that has ``ours`` in its name, and ``check`` is called. Returns the number of
    steps.
    """
    for at in range(1, most):
        await wait_all_tasks_blocked()
        before = {task.name for task in tasks()}
        with trio.CancelScope() as scope:
            instrument = _CancelAtStep(scope, at)
            trio.lowlevel.add_instrument(instrument)
            try:
                await program()
            finally:
                trio.lowlevel.remove_instrument(instrument)
        await wait_all_tasks_blocked()
        left = {task.name for task in tasks() if ours in task.name} - before
        assert not left, f"canceled at step {at}, it leaves {left}"
        check()
        if not scope.cancelled_caught:
            return at
    raise AssertionError(f"the program takes more than {most} steps")
