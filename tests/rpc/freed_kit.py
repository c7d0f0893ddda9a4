"""A context manager that shows which objects stay in memory while Python's garbage collector is off."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def no_collector(*kinds: type) -> Iterator[Callable[[], list[object]]]:
    """Turn the collector off. Yield a function that returns the objects of these kinds that were made since.

    Older ones do not count: another test may have left them, in the traceback of its failure for example.
    """
    gc.collect()
    gc.disable()
    try:
        older = {id(each): each for each in gc.get_objects() if isinstance(each, kinds)}
        yield lambda: [each for each in gc.get_objects() if isinstance(each, kinds) and id(each) not in older]
    finally:
        gc.enable()
