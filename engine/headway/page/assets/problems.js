// What needs attention: what fails, and what has been pending for longer than a minute, as one list.

import { h } from "./dom.js";
import { live } from "./live.js";
import { controllerLink, count, kind, moment, named, resourceLink, seconds } from "./text.js";
import { retryButton } from "./actions.js";

const SHOWN = 8;

/** Return what fails and what is stuck, the oldest first; one that is both is one entry. `since` is when its work became pending. */
function merged() {
  const own = new Map(live.controllers.map((each) => [each.name, each.process]));
  const found = new Map();
  const key = (each, process) => `${each.controller} ${process} ${each.resource.type} ${resourceLink(each.resource)}`;
  for (const each of live.failing) {
    // The server's own process has no name here.
    const process = each.process || own.get(each.controller) || "";
    found.set(key(each, process), { ...each, process, since: each.pendingSince ?? each.at, failed: true, stuck: false });
  }
  for (const each of live.stuck.items) {
    const before = found.get(key(each, each.process));
    found.set(key(each, each.process), before ? { ...before, state: each.state, line: each.line, stuck: true } : { ...each, outcome: "", failed: each.state === "given up" || each.state === "unmapped" || each.attempt > 1, stuck: true });
  }
  // A reconcile that hangs comes first, because the others may wait for its worker.
  const hangs = (each) => each.stuck && each.state === "running";
  return [...found.values()].sort((a, b) => hangs(b) - hangs(a) || a.since - b.since);
}

/** Return the first of each controller, then the second of each, and so on. */
function byTurns(entries) {
  const turns = new Map();
  return entries.map((each) => {
    const turn = (turns.get(each.controller) || 0) + 1;
    turns.set(each.controller, turn);
    return [turn, each];
  }).sort(([a], [b]) => a - b).map(([, each]) => each);
}

/** Return the list of what needs attention, of all controllers or of one. */
export function problems(controllers, of = "") {
  const entries = merged().filter((each) => !of || each.controller === of);
  const { unreachable } = live.stuck;
  if (!entries.length && (of || !unreachable.length)) return null;
  const first = new Set(byTurns(entries).slice(0, SHOWN));
  const more = entries.filter((each) => !first.has(each));
  const failing = controllers.reduce((total, each) => total + (each.gone ? 0 : each.notDone + (each.mappingFailed || 0)), 0);
  const stuck = entries.filter((each) => each.stuck).length + (of ? 0 : live.stuck.more);
  const counts = [failing > 0 && `${count(failing)} failing`, stuck > 0 && `${count(stuck)} stuck for over a minute`].filter(Boolean).join(", ");
  const left = Math.max(failing, stuck) - entries.length;
  return h("section", { key: "problems", class: "failing", "aria-labelledby": "failing-title" },
    h("h2", { id: "failing-title" }, "Needs attention", h("small", null, counts)),
    h("ul", null, entries.filter((each) => first.has(each)).map(problem)),
    more.length > 0 && h("details", null, h("summary", null, `${count(more.length)} more`), h("ul", null, more.map(problem))),
    left > 0 && h("p", { class: "empty" }, `${count(left)} more are not listed: search the resources of a type for those that fail.`),
    !of && unreachable.length > 0 && h("p", { class: "empty" }, `Not known of processes that do not answer: ${unreachable.join(", ")}`));
}

function badgeOf(each) {
  if (each.outcome === "unmapped" || each.state === "unmapped") return ["bad", "not mapped"];
  if (each.outcome === "permanent" || each.state === "given up") return ["bad", "gave up"];
  if (each.state === "absent") return ["bad", "runs nowhere"];
  if (each.stuck) return [each.failed ? "bad" : "warn", "stuck"];
  return each.outcome === "slowed" ? ["warn", "slowed"] : ["bad", "failing"];
}

/** Return what happens to an entry, in words. */
function told(each) {
  const since = (at) => seconds(Math.max(0, live.at - at));
  const words = [];
  if (each.outcome) {
    const times = each.attempts === 1 ? "once" : `${count(each.attempts)} times`;
    const unmapped = each.outcome === "unmapped";
    words.push(each.outcome === "slowed" ? `slowed, ${since(each.at)} ago` : unmapped ? `its change has not been mapped for ${since(each.at)}, failed ${times}` : `failed ${times}, last ${since(each.at)} ago`);
    words.push(each.until === null ? "waits for a change" : each.until > live.at ? `again in ${seconds(each.until - live.at)}` : "again now");
    // The rest says it of an unmapped change, and nothing is pending of what waits for a change.
    if (each.pendingSince !== null && !unmapped) words.push(`pending for ${since(each.since)}`);
  } else if (each.state === "given up") words.push(`gave up ${since(each.since)} ago, waits for a change`);
  else words.push(`${each.state === "absent" ? "no process has run it" : each.state} since ${moment(each.since)} (${since(each.since)})${each.attempt > 1 ? `, attempt ${count(each.attempt)}` : ""}`);
  return words.join(", ");
}

function problem(each) {
  const { resource } = each;
  const own = live.controllers.some((one) => one.name === each.controller && one.process === each.process);
  const [tone, text] = badgeOf(each);
  const whole = !resource.name;
  return h("li", { key: `${each.controller} ${each.process} ${each.state === "unmapped" || each.outcome} ${resourceLink(resource)}` },
    h("span", { class: "badge " + tone }, text),
    h("div", { class: "what" },
      whole ? h("a", { href: controllerLink(each.controller) }, h("span", { class: "kind" }, "Controller "), each.controller) : h("a", { href: resourceLink(resource) }, h("span", { class: "kind" }, kind(resource.type)), " ", named(resource)),
      (each.error || each.line) && h("span", { class: each.failed ? "error" : "line" }, each.error || each.line),
      each.error && each.line && h("span", { class: "line" }, each.line),
      h("span", { class: "meta" }, !whole && h("a", { href: controllerLink(each.controller) }, each.controller), `${own ? "" : ` (${each.process})`}${whole ? "" : ", "}${told(each)}`)),
    !whole && badgeOf(each)[1] !== "not mapped" && retryButton(each.controller, resource));
}
