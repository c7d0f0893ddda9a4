"""A program that charges an order once, and kills itself on the way: ``step_program.py FOLDER [PLACE]``.

The bank is a file to which each call appends the key that it was given, and whether the step was uncertain. The places
are those of `PLACES`. Without one, the program waits until its work is done, and prints the result of the step.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import trio

import headway
from headway import field

PLACES = ["intention stored", "effect happened", "result stored"]


@headway.message
class Order:
    amount: int = field(1)


async def main(folder: Path, place: str) -> None:
    """Open the store in the folder, order something and wait for the work."""
    app = headway.App("shop")
    order: headway.ResourceType[Order] = app.type("shop", "v1", "Order", Order)
    results = []

    def pass_by(now: str) -> None:
        if now == place:
            os.kill(os.getpid(), signal.SIGKILL)

    @app.controller(manages=order)
    async def orders(rt: headway.Runtime, request: headway.Request[Order]) -> None:
        found = rt.resource(request)
        if found is None:
            return
        async with rt.step(found, "charge", inputs=found.data.amount) as step:
            if not step.done:
                pass_by("intention stored")
                with (folder / "bank").open("a") as bank:
                    bank.write(f"{step.key} {step.uncertain}\n")
                pass_by("effect happened")
                step.result = f"charged {found.data.amount}"
        pass_by("result stored")
        results.append(step.result)

    async with headway.open_engine(f"sqlite:{folder / 'store.db'}", app) as engine:
        await engine.client.apply(order.new("o1", Order(amount=5)))
        with trio.fail_after(20):
            await engine.wait_idle()
    sys.stdout.write(f"{results[-1]}\n")


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), " ".join(sys.argv[2:]))
