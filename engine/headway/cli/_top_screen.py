"""The screen of `headway top`. Imported only where it is shown."""

from __future__ import annotations

from itertools import groupby

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.base import plain
from headway.cli._top_shown import HEADS, Shown, cells
from headway.observe import ControllerState


def screen(shown: Shown) -> RenderableType:
    """Return the screen at this moment: a summary, the controllers of each process, and those that do not answer."""
    states = shown.all
    parts: list[RenderableType] = [_summary(states)]
    for process, of in groupby(states, lambda state: state.process):
        parts.append(_table(process if shown.several else "", list(of)))
    parts += [Text(plain(problem), style="bold red") for problem in shown.problems.values()]
    parts.append(Text("q ends it", style="dim"))
    return Group(*parts)


def _summary(states: list[ControllerState]) -> Text:
    unready = sum(not state.ready for state in states)
    text = Text.assemble(
        ("headway top", "bold"),
        f"   {len(states)} controllers, ",
        (f"{unready} not ready", "bold red" if unready else "green"),
        f", {sum(state.rate or 0 for state in states):,.1f} reconciles/s, ",
        (f"{sum(state.failures or 0 for state in states):,.1f} failed/s", "red" if _fails(states) else ""),
        f", {sum(state.queued for state in states):,.0f} queued",
    )
    text.append("\n")
    return text


def _fails(states: list[ControllerState]) -> bool:
    return any(state.failures for state in states)


def _table(title: str, states: list[ControllerState]) -> Table:
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    for number, head in enumerate(HEADS):
        table.add_column(head, justify="left" if number < 2 else "right", no_wrap=True, overflow="ellipsis")
    for state in states:
        table.add_row(*map(Text, cells(state)), style=_style(state))
    return table


def _style(state: ControllerState) -> str:
    if not state.ready:
        return "yellow" if state.phase in ("priming", "standby") else "bold red"
    if state.paused or state.failures or state.not_done:
        return "yellow"
    return "" if state.rate else "dim"
