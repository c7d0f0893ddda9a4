"""The steps: each changes one thing, and waits for its effect on the calls, which must go on as they should."""

from __future__ import annotations

import datetime
import signal
from collections import Counter
from collections.abc import Awaitable, Callable

import trio

from mesh.demo.load import Load, Result
from mesh.demo.site import CALLER, Site

PATIENCE = 60.0
"""The seconds within which each step must be over."""
_SAMPLE, _AWAY = 400, 200
"""The number of calls of which shares are taken, and of those while the control plane is away."""
_STEADY = 50
"""The number of calls in a row after which a state counts as reached, also by calls on older connections."""

Say = Callable[[str], None]


class UnexpectedError(Exception):
    """The calls do not show what a step should cause."""


def by(*names: str) -> Callable[[str, Result], bool]:
    """Return a test that is true for the answers of these workloads."""
    return lambda words, _: words in names


def refused(_: str, result: Result) -> bool:
    """Return True if a proxy has denied the call."""
    return result is Result.REFUSED


class Scenario:
    """The steps on one site.

    Args:
        site: it runs, and its client calls.
        say: prints a line.
    """

    def __init__(self, site: Site, say: Say) -> None:
        self._site = site
        self._say = say
        self._load: Load = site.load

    async def begin(self) -> None:
        """Wait for the first answer, and begin to judge."""
        self._load.expect(Result.SERVED | Result.REFUSED | Result.LOST)
        took = await self._within("the first answer", self._load.until(by("shop-1"), _STEADY))
        self._load.expect(Result.SERVED)
        self._load.lost = 0
        self._say(f"shop-1 answers {CALLER}, through the proxies of both, after {took:.1f} s")

    async def round(self) -> None:
        """Do everything once."""
        for step in (
            self.split,
            self.permission,
            self.another_workload,
            self.failover,
            self.rotation,
            self.control_plane,
            self.proxy,
            self.why,
        ):
            await self._within(step.__name__, step())
            if self._load.wrong:
                raise UnexpectedError(
                    f"{self._load.wrong} calls ended otherwise than they should have in {step.__name__}"
                )

    async def _within(self, what: str, doing: Awaitable[float | None]) -> float:
        try:
            with trio.fail_after(PATIENCE):
                return await doing or 0.0
        except trio.TooSlowError:
            counts = dict(self._load.counts.most_common(10))
            raise UnexpectedError(f"{what} is not over after {PATIENCE:g} s; calls: {counts}") from None

    async def split(self) -> None:
        """Send a share of the calls to another version, move the most of them, and return."""
        await self._site.split(shop=90, canary=10)
        took = await self._load.until(by("canary-1"))
        await self._share("canary-1", 0.1, f"the route sends 10 % to canary ({took * 1000:.0f} ms)")
        await self._site.split(shop=10, canary=90)
        took = await self._load.until(by("canary-1"), 8)
        await self._share("canary-1", 0.9, f"the route sends 90 % to canary ({took * 1000:.0f} ms)")
        await self._site.split(shop=100)
        await self._load.until(by("shop-1", "shop-2"), _STEADY)
        self._say("the route sends everything to shop again")

    async def _share(self, name: str, expected: float, text: str) -> None:
        found = await self._load.sample(_SAMPLE)
        share = found[name] / found.total()
        # Five standard deviations of a sample.
        if abs(share - expected) > 5 * (expected * (1 - expected) / _SAMPLE) ** 0.5:
            raise UnexpectedError(f"{text}, but {name} has answered {share:.1%} of {_SAMPLE} calls")
        self._say(f"{text}: {name} has answered {share:.1%} of {_SAMPLE} calls")

    async def permission(self) -> None:
        """Deny the caller, and allow it again."""
        self._load.expect(Result.SERVED | Result.REFUSED)
        await self._site.permit("shop", "nobody")
        took = await self._load.until(refused)
        await self._load.until(refused, _STEADY)
        self._load.expect(Result.REFUSED)
        await self._load.sample(_STEADY)
        self._say(f"{CALLER} may not call shop any more: refused after {took * 1000:.0f} ms")
        self._load.expect(Result.SERVED | Result.REFUSED)
        await self._site.permit("shop", CALLER)
        took = await self._load.until(by("shop-1", "shop-2"))
        await self._load.until(by("shop-1", "shop-2"), _STEADY)
        self._load.expect(Result.SERVED)
        self._say(f"{CALLER} may call shop again: answered after {took * 1000:.0f} ms")

    async def another_workload(self) -> None:
        """Add a workload under load, in the first round."""
        if "shop-2" in self._site.members:
            return
        await self._site.add("shop-2")
        await self._load.until(by("shop-2"))
        self._say(f"a workload is added: {self._shares(await self._load.sample(_STEADY))}")

    def _shares(self, found: Counter[str]) -> str:
        return ", ".join(f"{name} has answered {count}" for name, count in sorted(found.items()))

    async def failover(self) -> None:
        """Kill all processes of the service, and start them again."""
        shops = [self._site.members[each] for each in ("shop-1", "shop-2")]
        self._load.expect(Result.SERVED | Result.LOST)
        for each in shops:
            await each.app.kill()
        took = await self._load.until(by("backup-1"))
        await self._load.until(by("backup-1"), _STEADY)
        self._load.expect(Result.SERVED)
        self._say(f"shop is killed: backup-1 answers after {took * 1000:.0f} ms{self._lost()}")
        for each in shops:
            await each.app.start()
        await self._load.until(by("shop-1"))
        await self._load.until(by("shop-1", "shop-2"), _STEADY)
        self._say("shop is back, and answers instead of backup-1")

    def _lost(self) -> str:
        lost, self._load.lost = self._load.lost, 0
        return f"; {lost} calls were lost" if lost else "; no call was lost"

    async def rotation(self) -> None:
        """Rotate the root, with leaves of some seconds, which are renewed meanwhile. Then they last long again."""
        (old,), _ = await self._site.certificates()
        began = trio.current_time()
        wanted = str(datetime.datetime.now(datetime.UTC))
        await self._site.rotate(wanted, short=True)
        while True:
            roots, ends = await self._site.certificates()
            if old not in roots:
                break
            await self._load.sample(1)
        took = trio.current_time() - began
        await self._site.rotate(wanted, short=False)
        while ends < datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1):
            await self._load.sample(1)
            _, ends = await self._site.certificates()
        self._say(f"the root is rotated: no proxy trusts the old one after {took:.1f} s")

    async def control_plane(self) -> None:
        """Kill the control plane, and start it again. It knows everything again, and changes nothing by itself."""
        await self._site.control.kill()
        await self._load.sample(_AWAY)
        self._say(f"the control plane is killed: {_AWAY} calls have been answered without it")
        await self._site.control.start()
        await self._load.sample(_STEADY)
        await self._site.split(canary=100)
        took = await self._load.until(by("canary-1"), _STEADY)
        self._say(f"the control plane is back: a changed route follows after {took * 1000:.0f} ms")
        await self._site.split(shop=100)
        await self._load.until(by("shop-1", "shop-2"), _STEADY)

    async def proxy(self) -> None:
        """Kill a proxy, and start it again."""
        member = self._site.members["shop-2"]
        self._load.expect(Result.SERVED | Result.LOST)
        member.proxy.send(signal.SIGKILL)
        await self._load.until(by("shop-1", "backup-1"), _STEADY)
        self._load.expect(Result.SERVED)
        self._say(f"the proxy of shop-2 is killed: others answer{self._lost()}")
        await member.proxy.kill()
        await member.proxy.start()
        await self._load.until(by("shop-2"))
        self._say("the proxy of shop-2 is back, and shop-2 answers again")

    async def why(self) -> None:
        """Ask why a proxy has no route to a service."""
        await self._site.reach("nowhere", 10_001)
        await self._site.missing("PartsLeftOut")
        told = await self._site.why(f"{CALLER}-1")
        found = [line.strip() for line in told.splitlines() if "nowhere" in line and "Condition" in line]
        if not found:
            raise UnexpectedError(f"headway why does not say why {CALLER} has no route to nowhere: {told}")
        self._say(f"headway why: {found[0]}")
        await self._site.unreach("nowhere")
        await self._site.missing("AllIncluded")
