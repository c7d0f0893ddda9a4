"""The style sheet and the script of a story's page. The page is complete without the script."""

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
