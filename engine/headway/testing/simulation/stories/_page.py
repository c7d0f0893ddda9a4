"""A story as a page: a timeline with a lane for the store, for each process and for the world outside. Pure.

The page needs no server and no network. Its policy allows its own style sheet and script alone, so that text of a
program which contains markup has no effect even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence

from headway.testing.simulation._trace import (
    Committed,
    Delivered,
    Entry,
    Happened,
    OutsideChanged,
    Reconcile,
    Reconciled,
    Step,
    Trace,
    named,
)
from headway.testing.simulation.faults import Plan
from headway.testing.simulation.oracles import Finding, Result
from headway.testing.simulation.stories._causes import is_planned_fault
from headway.testing.simulation.stories._excerpt import Excerpt
from headway.testing.simulation.stories._report import described, is_timing_alone, replay_line

_ROWS = 4000
"""The number of entries from which on a page shows only a part of them."""
_LATER = 1.0
"""The number of seconds without an entry that the timeline shows as a gap."""
_OUTSIDE = "call outside."


def page(title: str, plan: Plan | None, result: Result, findings: Sequence[Finding]) -> str:
    """Return the page of a story. ``plan`` is None if the faults were not planned."""
    trace = result.trace
    excerpt = Excerpt(trace, findings, _ROWS, earlier=True)
    shown = list(range(len(trace.entries))) if len(trace.entries) <= _ROWS else excerpt.shown
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_escaped(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{_escaped(title)}</h1>",
        *_findings(trace, findings, excerpt),
        *_faults(trace, plan, shown),
        *([f"<h2>Again</h2><p><code>{_escaped(replay_line(plan))}</code></p>"] if plan is not None else ()),
        *_timeline(trace, findings, excerpt, shown),
        f"<script>{SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _policy() -> str:
    allowed = "; ".join(f"{what} '{_digest(text)}'" for what, text in (("style-src", STYLE), ("script-src", SCRIPT)))
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _escaped(text: str) -> str:
    """Return text for HTML. Characters that are not printable, such as those that reverse a line, are spelled out."""
    shown = "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode() for each in text
    )
    return html.escape(shown)


def _findings(trace: Trace, findings: Sequence[Finding], excerpt: Excerpt) -> list[str]:
    lines = ["<h2>What is wrong</h2>", '<ol class="findings">']
    for number, finding in enumerate(findings):
        links = [_link(at, _moment(trace.entries[at])) for at, of in sorted(excerpt.causes.items()) if number in of]
        where = f" See {', '.join(links)}." if links else ""
        lines.append(f'<li id="finding-{number}"><span class="text">{_escaped(str(finding))}</span>{where}</li>')
    return [*lines, "</ol>"]


def _faults(trace: Trace, plan: Plan | None, shown: Sequence[int]) -> list[str]:
    struck = [at for at in shown if is_planned_fault(trace.entries[at])]
    if plan is not None and is_timing_alone(plan):
        head = "Timing alone, without any fault"
    else:
        head = "The faults" if struck or plan else "No faults"
    items: list[str] = []
    said: set[int] = set()
    for text, why in described(plan) if plan is not None else ():
        found = [at for at in struck if _text(trace.entries[at]) == text]
        said.update(found)
        links = ", ".join(_link(at, _moment(trace.entries[at])) for at in found)
        items.append(f"<code>{_escaped(text)}</code> {_escaped(why)}{f' See {links}.' if links else ''}")
    for at in struck:
        if at not in said:
            items.append(f"{_link(at, _moment(trace.entries[at]))}: <code>{_escaped(_text(trace.entries[at]))}</code>")
    return [
        f"<h2>{head}</h2>",
        *(['<ul class="faults">', *(f"<li>{each}</li>" for each in items), "</ul>"] if items else []),
    ]


def _text(entry: Entry) -> str:
    return entry.text if isinstance(entry, Happened) else str(entry)


def _moment(entry: Entry) -> str:
    return f"{entry.revision}" if isinstance(entry, Committed) else f"{entry.at:.3f} s"


def _link(at: int, text: str) -> str:
    return f'<a href="#e{at}">{_escaped(text)}</a>'


# --- the timeline ---


def _timeline(trace: Trace, findings: Sequence[Finding], excerpt: Excerpt, shown: Sequence[int]) -> list[str]:
    processes = _processes(trace)
    lanes = ["store", *processes, "outside"]
    commits = {each.revision: at for at, each in enumerate(trace.entries) if isinstance(each, Committed)}
    lead = "Times are virtual seconds."
    bookmarks = '<label><input type="checkbox" id="minor"> Show bookmarks, too.</label>'
    keys = "Keys: n and p go to the next and the previous mark. A click on a row shows the rows of the same resource."
    heads = "".join(f'<th scope="col">{_escaped(lane)}</th>' for lane in lanes)
    lines = [
        "<h2>What happened</h2>",
        f'<p class="note">{lead} {bookmarks} <span id="keys" hidden>{keys}</span></p>',
        f'<table><thead><tr><th scope="col" class="time">s</th>{heads}</tr></thead><tbody>',
    ]
    before, place = 0.0, -1
    for at in shown:
        entry = trace.entries[at]
        gaps = [f"{at - place - 1} entries are left out"] if at - place > 1 else []
        gaps += [f"{entry.at - before:.1f} s later"] if entry.at - before > _LATER else []
        lines += [f'<tr class="gap"><td colspan="{len(lanes) + 1}">{gap}</td></tr>' for gap in gaps]
        marks = excerpt.causes.get(at, [])
        links = [f'<a href="#finding-{each}">{_escaped(findings[each].oracle)}</a>' for each in marks]
        lines.append(_row(at, entry, lanes, commits, links))
        before, place = entry.at, at
    return [*lines, "</tbody></table>"]


def _processes(trace: Trace) -> list[str]:
    found = {each.process for each in trace.entries if isinstance(each, Delivered | Reconcile)}
    return sorted(
        found, key=lambda name: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
    )


def _row(at: int, entry: Entry, lanes: Sequence[str], commits: dict[int, int], links: Sequence[str]) -> str:
    cells = _cells(entry, lanes, commits)
    classes = [
        *(["fault"] if isinstance(entry, Happened) and entry.fault else []),
        *(["cause"] if links else []),
        *(["minor"] if not links and _is_minor(entry) else []),
    ]
    about = _about(entry)
    attributes = f' id="e{at}"'
    attributes += f' class="{" ".join(classes)}"' if classes else ""
    attributes += f' data-about="{_escaped(about)}"' if about else ""
    mark = f" &larr; {', '.join(links)}" if links else ""
    time = f'<td class="time">{entry.at:.3f}</td>'
    if not cells:
        return f'<tr{attributes}>{time}<td colspan="{len(lanes)}">{_escaped(_text(entry))}{mark}</td></tr>'
    last = list(cells)[-1]
    columns = [f"<td>{cells.get(lane, '')}{mark if lane == last else ''}</td>" for lane in lanes]
    return f"<tr{attributes}>{time}{''.join(columns)}</tr>"


def _cells(entry: Entry, lanes: Sequence[str], commits: dict[int, int]) -> dict[str, str]:
    """Return what stands in the lanes, or nothing if the entry is about no lane alone."""
    text = str(entry)
    match entry:
        case Committed():
            return {"store": _escaped(text.removeprefix("store "))}
        case OutsideChanged():
            return {"outside": _escaped(text)}
        case Step():
            process = entry.by.process
            said = _escaped(text.removeprefix(f"{process} "))
            if entry.revision in commits:
                said += f' <a href="#e{commits[entry.revision]}">(commit)</a>'
            call = entry.method.removeprefix(_OUTSIDE)
            outside = {} if call == entry.method else {"outside": _escaped(f"{call}: {entry.outcome}")}
            return {process: said, **outside}
        case Delivered() | Reconcile():
            return {entry.process: _escaped(text.removeprefix(f"{entry.process} "))}
        case Reconciled():
            process = entry.began.process
            return {process: _escaped(text.removeprefix(f"{process} "))}
        case Happened():
            process = re.split(r"[: ]", entry.text, maxsplit=1)[0]
            return {process: _escaped(entry.text[len(process) :].lstrip(": "))} if process in lanes[1:-1] else {}
    raise AssertionError(f"no lane for {entry!r}")


def _about(entry: Entry) -> str:
    """Return the name of the resource that an entry is about."""
    match entry:
        case Committed() | Step() | Reconcile():
            return named(entry.kind, entry.key) if entry.key[2] else ""
        case Reconciled():
            return _about(entry.began)
    return ""


def _is_minor(entry: Entry) -> bool:
    return isinstance(entry, OutsideChanged) or (isinstance(entry, Delivered) and entry.what == "a bookmark")


STYLE = """
:root {
  color-scheme: light dark;
  --ground: #fff; --text: #1c1c1c; --dim: #6a6a6a; --line: #d8d8d8; --head: #f3f3f3; --link: #0550ae;
  --fault: #ffe3e0; --fault-edge: #c62828; --cause: #fff1c2; --cause-edge: #9a6700; --same: #dbeafe;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #16181c; --text: #e4e4e4; --dim: #9b9b9b; --line: #373b41; --head: #20242a; --link: #82b4ff;
    --fault: #4a1f1d; --fault-edge: #ff8a80; --cause: #453800; --cause-edge: #ffd75e; --same: #1e3a5f;
  }
}
body { margin: 1.5rem; background: var(--ground); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; }
a { color: var(--link); }
code, td, pre { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 12.5px; }
code, .text { white-space: pre-wrap; overflow-wrap: anywhere; }
.findings li, .faults li { margin: .4rem 0; padding: .3rem .6rem; }
.findings li { border-left: 4px solid var(--cause-edge); background: var(--cause); }
.faults li { border-left: 4px solid var(--fault-edge); background: var(--fault); }
.note { color: var(--dim); }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
th { position: sticky; top: 0; background: var(--head); text-align: left; }
th, td { border: 1px solid var(--line); padding: .15rem .4rem; vertical-align: top; overflow-wrap: anywhere; }
th.time, td.time { width: 5.5rem; text-align: right; color: var(--dim); }
tr.fault td { background: var(--fault); font-weight: 600; }
tr.fault td.time { border-left: 4px solid var(--fault-edge); }
tr.cause td { background: var(--cause); }
tr.cause td.time { border-left: 4px solid var(--cause-edge); }
tr.same td { background: var(--same); }
tr.gap td { color: var(--dim); text-align: center; border-style: dotted; }
tr:target td { outline: 2px solid var(--link); outline-offset: -2px; }
tr { scroll-margin: 5rem; }
body:not(:has(#minor:checked)) tr.minor { display: none; }
"""

SCRIPT = """
"use strict";
const rows = [...document.querySelectorAll("tr[data-about]")];
const marks = [...document.querySelectorAll("tr.fault, tr.cause")];
let at = -1;
document.addEventListener("click", (event) => {
  const row = event.target.closest("tr[data-about]");
  if (!row || event.target.closest("a")) return;
  const off = row.classList.contains("same");
  for (const each of rows) each.classList.toggle("same", !off && each.dataset.about === row.dataset.about);
});
document.addEventListener("keydown", (event) => {
  const step = { n: 1, p: -1 }[event.key];
  if (!step || !marks.length || event.ctrlKey || event.metaKey || event.altKey) return;
  at = at < 0 && step < 0 ? marks.length - 1 : (at + step + marks.length) % marks.length;
  location.hash = marks[at].id;
});
document.getElementById("keys").hidden = false;
"""
