// The controllers of all processes: their table, their own page, and the page of one of them.

import { h } from "./dom.js";
import { live } from "./live.js";
import { byName, chart, markAlone, pointsOf, sparkline, stateText, tone } from "./charts.js";
import { controllerLink, count, kind, moment, rate, seconds, typeLink, unmappedText } from "./text.js";
import { pauseButtons } from "./actions.js";
import { problems } from "./problems.js";
import { sortHead, sortList, sorted } from "./sorting.js";

const TONES = ["bad", "warn", "good", "quiet"];
const BY = {
  Controller: (each) => each.name, Process: (each) => each.process, State: (each) => TONES.indexOf(tone(each)), Rate: (each) => each.rate, Failed: (each) => each.failures,
  Queued: (each) => each.queued, Running: (each) => each.running, "Backing off": (each) => each.resting, "Not done": (each) => each.notDone + (each.mappingFailed || 0), Oldest: (each) => each.oldest, Lag: (each) => each.lag,
};
const TEXTS = ["Controller", "Process", "State"];

/** Return all controllers, those that something is wrong with first. */
export function worstFirst(controllers) {
  return [...controllers].sort((a, b) => TONES.indexOf(tone(a)) - TONES.indexOf(tone(b)));
}

/** Return the numbers of controllers. With `redraw`, the reader may sort them. */
export function table(controllers, redraw = null) {
  const here = new Set(live.controllers.map((each) => each.process));
  // The process is worth a column only where there are several.
  const processes = controllers.some((each) => !here.has(each.process));
  const heads = Object.keys(BY).filter((head) => processes || head !== "Process");
  const head = (name) => (redraw ? sortHead("controllers", name, redraw, { class: TEXTS.includes(name) ? null : "number" }, !TEXTS.includes(name)) : h("th", { scope: "col", key: name, class: TEXTS.includes(name) ? null : "number" }, name));
  const rows = redraw ? sorted("controllers", controllers, BY) : controllers;
  return h("div", { class: "wide" }, redraw && sortList("controllers", heads, redraw), h("table", { class: "controllers" },
    h("thead", null, h("tr", null, heads.slice(0, processes ? 3 : 2).map(head), h("th", { scope: "col", key: "15" }, "15 minutes"), heads.slice(processes ? 3 : 2).map(head))),
    h("tbody", null, rows.map((each) => h("tr", { key: `${each.name} ${each.process}`, class: tone(each) },
      h("th", { scope: "row" }, h("a", { href: controllerLink(each.name) }, each.name)),
      processes && h("td", { class: "process", "data-label": "Process" }, each.process),
      h("td", { class: "state" }, h("span", { class: "dot", "aria-hidden": "true" }), stateText(each), each.phase === "standby" && each.leader && h("small", null, `${each.leader} holds the lease`), each.gone && h("small", null, `since ${moment(each.gone)}`), each.mappingFailed > 0 && h("small", null, unmappedText(each.mappingFailed)), each.problem && h("small", null, each.problem)),
      h("td", { class: "sparks" }, sparkline(pointsOf(each), each.name)),
      cell("Rate", rate(each.rate)), cell("Failed", rate(each.failures), each.failures > 0), cell("Queued", count(each.queued)), cell("Running", count(each.running)),
      cell("Backing off", count(each.resting)), cell("Not done", count(each.notDone), each.notDone > 0), cell("Oldest", each.oldest ? seconds(each.oldest) : "–"), cell("Lag", count(each.lag)))))));
}

function cell(label, text, bad = false) {
  return h("td", { class: "number" + (bad ? " bad" : "") + (["0", "0.0/s", "–"].includes(text) && !bad ? " none" : ""), "data-label": label }, text);
}

/** The page of all controllers. */
export class Controllers {
  constructor(redraw) {
    this.redraw = redraw;
    this.text = "";
  }

  close() {}

  content() {
    const everywhere = [...live.controllers, ...live.elsewhere];
    markAlone(everywhere);
    const wanted = everywhere.filter((each) => `${each.name} ${each.process} ${stateText(each)}`.toLowerCase().includes(this.text));
    const [mine, own] = [false, true].map((which) => wanted.filter((each) => Boolean(each.own) === which));
    return [
      h("h1", null, "Controllers"),
      h("form", { class: "search one", role: "search", onsubmit: (event) => event.preventDefault() },
        h("label", { class: "text" }, "Name, process or state contains", h("input", { id: "search", type: "search", autocomplete: "off", spellcheck: "false", oninput: (event) => { this.text = event.target.value.trim().toLowerCase(); this.redraw(); } }))),
      absent((each) => each.name.toLowerCase().includes(this.text)),
      h("section", { "aria-label": "Controllers" },
        h("p", { class: "meta", role: "status" }, counted(mine, everywhere.filter((each) => !each.own))),
        mine.length > 0 ? table(mine, this.redraw) : h("p", { class: "empty" }, this.text ? "No controller fits this." : live.connected ? "No controller that you may observe runs for this server." : "Connecting…"),
        live.elsewhereMore > 0 && h("p", { class: "empty" }, `${count(live.elsewhereMore)} more are not shown.`),
        own.length > 0 && h("details", { class: "own" }, h("summary", null, `Headway’s own (${own.length})`), table(own))),
    ];
  }
}

function counted(shown, all) {
  const processes = new Set(shown.map((each) => each.process)).size;
  return `${count(shown.length)}${shown.length < all.length ? ` of ${count(all.length)}` : ""}, in ${processes === 1 ? "one process" : `${count(processes)} processes`}`;
}

/** Return which controllers run nowhere although they are wanted. */
function absent(wanted = () => true) {
  const missing = live.absent.filter(wanted);
  if (!missing.length) return null;
  return h("div", { key: "absent", class: "problem", role: "alert" }, missing.map((each) => h("div", { key: each.name }, h("strong", null, each.name), ` is wanted, and no process has run it since ${moment(each.since)}.`)));
}

/** Return a mark that the numbers are old, if the server fails to look. */
export function stale() {
  if (live.stale === null) return null;
  return h("p", { class: "problem stale", role: "alert" }, `Some of these numbers are old: since ${moment(live.stale)} the server fails to look at its controllers. Its log has the error.`);
}

/** Return the progress of the types of a controller. */
export function bars(types) {
  return h("ul", { class: "bars" }, types.map((each) => {
    const known = each.total !== null && each.total > 0;
    const text = each.done ? `${count(each.received)} received` : `${count(each.received)}${each.total !== null ? " of " + count(each.total) : ""} received${each.left !== null ? ", about " + seconds(each.left) + " left" : ""}`;
    return h("li", { key: each.of, class: each.done ? "done" : "" },
      h("span", { class: "of" }, kind(each.type), each.of !== each.type && h("small", null, " " + each.of.slice(each.type.length))),
      h("progress", { max: known ? each.total : 1, value: each.done ? (known ? each.total : 1) : known ? each.received : each.total === null ? null : 0, "aria-label": `${each.of}: ${text}` }),
      h("span", { class: "counts" }, text),
      each.cutOff && h("span", { class: "bad" }, each.cutOff));
  }));
}

/** Return for how long a controller has been in the state that is shown. */
function lasting(of) {
  const time = of.paused !== null ? of.pausedSeconds ?? 0 : of.seconds;
  return time > 0 ? ` for ${seconds(time)}` : "";
}

/** Return the view of one controller: of the process that runs it, and of the others below. */
export function controllerView(name) {
  const all = [...live.controllers, ...live.elsewhere].filter((each) => each.name === name);
  markAlone([...live.controllers, ...live.elsewhere]);
  const of = byName(all).get(name);
  const crumbs = h("nav", { class: "crumbs", "aria-label": "Breadcrumbs" }, h("a", { href: "#/controllers" }, "Controllers"));
  if (!of) return [crumbs, h("h1", null, h("span", { class: "kind" }, "Controller"), " ", name), absent((each) => each.name === name) || h("p", { class: "empty" }, live.connected ? "No controller of this name that you may observe runs for this server." : "Connecting…")];
  const points = pointsOf(of);
  return [
    crumbs,
    h("h1", null, h("span", { class: "kind" }, "Controller"), " ", name),
    stale(),
    h("p", { class: "state-line " + tone(of) }, h("span", { class: "dot", "aria-hidden": "true" }), stateText(of), of.paused ? `: ${of.paused}` : "", of.leader ? `: process ${of.leader} runs it` : "", of.gone ? ` since ${moment(of.gone)}` : lasting(of), of.restarts ? `, after ${count(of.restarts)} restarts` : ""),
    of.problem && h("p", { class: "problem" }, `It ${of.problem}.`),
    of.writesHeld && h("p", { class: "problem" }, `It ${of.writesHeld}.`),
    of.mappingFailed > 0 && h("p", { class: "problem" }, `${unmappedText(of.mappingFailed)}, because a mapper or predicate raised: it may concern any ${kind(of.manages)}.`),
    h("p", { class: "actions" }, of.manages && h("a", { class: "button", href: typeLink(of.manages) }, "Resources of " + kind(of.manages)), pauseButtons(of)),
    problems(all, name),
    of.priming.length > 0 && h("section", { class: "priming" }, h("h2", null, "Priming"), bars(of.priming)),
    h("div", { class: "charts" }, chart(points, "rate", "Reconciles a second", rate), chart(points, "failures", "Failed a second", rate), chart(points, "queued", "Queued", count), chart(points, "lag", "Lag in revisions", count)),
    h("section", { "aria-labelledby": "numbers-title" }, h("h2", { id: "numbers-title" }, "Now"),
      h("dl", { class: "facts" }, [["Running", count(of.running)], ["Backing off", count(of.resting)], ["Scheduled", count(of.scheduled)], ["Not done", count(of.notDone), of.notDone > 0], ["Not yet mapped", count(of.unmapped), of.mappingFailed > 0], ["Oldest ready key", of.oldest ? seconds(of.oldest) : "–"], ["Process", of.process]].map(([head, text, bad]) => h("div", { key: head }, h("dt", null, head), h("dd", { class: bad ? "bad" : null }, text))))),
    all.length > 1 && h("section", { "aria-labelledby": "processes-title" }, h("h2", { id: "processes-title" }, "In each process"), table(all)),
  ];
}
