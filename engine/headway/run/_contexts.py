"""The context variables of a worker, which works on many keys in one task."""

from __future__ import annotations

from contextvars import Context

import trio

from headway.cache import READING


async def restore_context(clean: Context) -> None:
    """Undo what a reconcile has set in the context of this task, so that the next one does not see it.

    The worker's own variable stays. A variable that was not set before can be unset only together with the whole
    context. Trio runs each step of a task, from one checkpoint to the next, in the context that the task has then.
    """
    clean.run(READING.set, READING.get())
    trio.lowlevel.current_task().context = clean.copy()
    await trio.lowlevel.cancel_shielded_checkpoint()
