"""The tasks of the current Trio run."""

from __future__ import annotations

from collections.abc import Iterator

import trio


def all_tasks() -> Iterator[trio.lowlevel.Task]:
    """Yield every task of the current run."""
    root = trio.lowlevel.current_root_task()
    left = [root] if root is not None else []
    while left:
        task = left.pop()
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        yield task
