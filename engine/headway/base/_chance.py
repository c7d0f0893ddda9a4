"""The engine's own random numbers, for delays.

A program that draws from `random` doesn't change them, and they don't change what it draws. So a simulation tells apart
a program that is random from one that depends on when its timers fire.
"""

from __future__ import annotations

import random

from headway.base._forks import in_forked_child

chance = random.Random()
# A child would wait at the same times as its parent.
in_forked_child(chance, random.Random.seed)
