"""Run the conformance checks on a store, and show the result of each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal

import click

from headway.cli._exits import Exit, Usage
from headway.cli._text import json_text, plain
from headway.testing import BACKEND_CHECKS, StoreUnderTest, Verdict, claim_of, verdicts


async def hold(given: Any, seconds: float, only: Sequence[str], output: Literal["text", "json"]) -> None:
    """Run the checks whose names contain one of the words, or all checks. Exit with 7 if one fails."""
    if not isinstance(given, StoreUnderTest) and not callable(given):
        raise Usage(f"{given!r:.80} cannot open a store: it must be a function, or a headway.testing.StoreUnderTest")
    store = given if isinstance(given, StoreUnderTest) else StoreUnderTest(given)
    checks = [check for check in BACKEND_CHECKS if not only or any(word in claim_of(check)[0] for word in only)]
    if not checks:
        raise Usage(f"--only {' '.join(only)}: no name of a check contains this")
    said = await verdicts(store, checks, seconds=seconds, report=_show if output == "text" else None)
    broken = [each for each in said if each.failure]
    lacking = [each for each in said if each.lacks]
    if output == "json":
        click.echo(json_text([each._asdict() for each in said], indent=2))
    else:
        click.echo(
            f"{len(said) - len(broken) - len(lacking)} of {len(said)} claims hold"
            + (f", {len(broken)} don't" if broken else "")
            + (f", {len(lacking)} left out" if lacking else "")
        )
    if broken:
        sys.exit(Exit.DIFFERENT)


def _show(verdict: Verdict) -> None:
    word = "failed" if verdict.failure else "lacking" if verdict.lacks else "holds"
    click.echo(f"{word:<8}{verdict.seconds:7.2f} s  {verdict.claim}")
    if verdict.failure:
        click.echo(f"{'':19}claimed: {plain(verdict.sentence)}")
        click.echo(f"{'':19}but: {plain(verdict.failure)}")
    sys.stdout.flush()
