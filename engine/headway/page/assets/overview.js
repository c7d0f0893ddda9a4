// The overview: what all controllers do, and what fails.

import { h } from "./dom.js";
import { live } from "./live.js";
import { byName, chart, markAlone, picture, sparkline, stateText, tone } from "./charts.js";
import { controllerLink, count, kind, moment, named, rate, resourceLink, seconds, typeLink, unmappedText } from "./text.js";
import { pauseButtons, retryButton } from "./actions.js";

/** Return the content of the overview. */
export function overview() {
  const mine = live.controllers.filter((each) => !each.own);
  const own = live.controllers.filter((each) => each.own);
  const everywhere = [...live.controllers, ...live.elsewhere];
  markAlone(everywhere);
  return [
    h("h1", { class: "hidden" }, "Overview"),
    stale(),
    summary(everywhere.filter((each) => !each.gone && each.answers !== false), live.absent),
    priming(live.controllers),
    failing(live.failing, everywhere),
    stuck(live.stuck),
    refused(live.refused),
    live.graph && live.graph.boxes.length > 0 && h("section", { "aria-labelledby": "graph-title" },
      h("h2", { id: "graph-title" }, "Graph"),
      h("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "The graph, which scrolls", onscroll: (event) => hint(event.target) }, picture(live.graph, everywhere, live.types)),
      h("p", { class: "hint", "aria-hidden": "true" }, "Scroll the graph sideways to see all of it."),
      h("p", { class: "legend", "aria-hidden": "true" }, h("span", { class: "triggers" }, "a change triggers"), h("span", { class: "reads" }, "reads"), h("span", { class: "writes" }, "writes"))),
    h("section", { "aria-labelledby": "controllers-title" },
      h("h2", { id: "controllers-title" }, "Controllers"),
      mine.length ? table(mine) : !live.elsewhere.length && h("p", { class: "empty" }, "There is no controller here that you may observe."),
      elsewhere(live.elsewhere),
      own.length > 0 && h("details", { class: "own" }, h("summary", null, `Headway’s own (${own.length})`), table(own))),
  ];
}

/** Show whether a graph is wider than the page. One that has just been drawn begins at what is wrong in it. */
export function fit(main) {
  const scroller = main.querySelector(".scroller");
  if (!scroller) return;
  const wrong = scroller.querySelector(".box.bad") || scroller.querySelector(".box.warn");
  if (!scroller.dataset.drawn && wrong) scroller.scrollLeft = wrong.getBoundingClientRect().right - scroller.getBoundingClientRect().right + 12;
  scroller.dataset.drawn = "yes";
  hint(scroller);
}

function hint(scroller) {
  const left = scroller.scrollWidth - scroller.clientWidth;
  scroller.classList.toggle("wider", left > 4);
  scroller.classList.toggle("to-the-left", scroller.scrollLeft > 4);
  scroller.classList.toggle("to-the-right", scroller.scrollLeft < left - 4);
}

/** Return a mark that the numbers are old, if the server fails to look. */
function stale() {
  if (live.stale === null) return null;
  return h("p", { class: "problem stale", role: "alert" }, `Some of these numbers are old: since ${moment(live.stale)} the server fails to look at its controllers. Its log has the error.`);
}

/** Return the controllers of other processes. */
function elsewhere(controllers) {
  if (!controllers.length) return null;
  return h("section", { class: "elsewhere", "aria-labelledby": "elsewhere-title" },
    h("h3", { id: "elsewhere-title" }, "In other processes"),
    table(controllers, false),
    h("p", { class: "meta" }, "They are asked only while somebody watches, so they have no history here. Only their own process can retry what fails in them."),
    live.elsewhereMore > 0 && h("p", { class: "empty" }, `${count(live.elsewhereMore)} more are not shown.`));
}

/** Return what the limits on callers have refused since the server began, or since they changed. */
function refused(limits) {
  if (!limits.length) return null;
  return h("section", { class: "refused", "aria-labelledby": "refused-title" },
    h("h2", { id: "refused-title" }, "Refused by limits"),
    h("ul", null, limits.map((each) => h("li", { key: each.limit }, `${each.limit}: ${count(each.calls)} calls, the last by ${each.caller || "a caller without a token"}`))));
}

function summary(controllers, absent) {
  const mine = byName(controllers.filter((each) => !each.own)).size;
  const unready = controllers.filter((each) => !each.ready && each.phase !== "standby").length;
  const paused = controllers.filter((each) => each.paused !== null).length;
  const sum = (field) => controllers.reduce((total, each) => total + (each[field] || 0), 0);
  const failing = controllers.filter((each) => each.notDone || each.mappingFailed).length;
  const idle = [...byName(controllers).values()].filter((each) => each.phase === "standby").length;
  const [state, toned] = absent.length ? [`${absent.length} running nowhere`, "wrong"] : failing ? [`${failing} failing`, "wrong"] : idle ? [`${idle} standing by`, "warn"] : unready ? [`${unready} not ready`, "warn"] : paused ? [`${paused} paused`, "warn"] : ["all ready", "good"];
  const [wrong, unmapped] = [sum("notDone"), sum("mappingFailed")];
  // A rate that rounds to nothing says nothing.
  const failed = sum("failures") >= 0.05 ? `${rate(sum("failures"))} failed` : "";
  const below = [unmapped > 0 && `${count(unmapped)} of them not mapped`, failed].filter(Boolean).join(", ");
  return h("dl", { class: "tiles" },
    tile("Controllers", count(mine), state, toned),
    tile("Failing", count(wrong + unmapped), below || (wrong + unmapped ? "retried later, or after a change" : "nothing"), wrong + unmapped ? "bad" : "good"),
    tile("Reconciles", rate(sum("rate")), `${count(sum("running"))} running`),
    tile("Queued", count(sum("queued")), `${count(sum("resting"))} backing off`),
    tile("Lag", count(Math.max(0, ...controllers.map((each) => each.lag))), "revisions behind"));
}

function tile(name, value, below, toned = "") {
  return h("div", { class: "tile " + toned }, h("dt", null, name), h("dd", null, h("strong", null, value), h("small", null, below)));
}

function priming(controllers) {
  const all = controllers.filter((each) => each.priming.length);
  if (!all.length) return null;
  return h("section", { class: "priming", "aria-labelledby": "priming-title" },
    h("h2", { id: "priming-title" }, "Priming"),
    all.map((controller) => h("div", { key: controller.name, class: "group" },
      h("h3", null, h("a", { href: controllerLink(controller.name) }, controller.name)),
      bars(controller.priming))));
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

const SHOWN = 6;

/** Return the list of failing resources and unmapped changes of these controllers. */
export function failing(entries, controllers) {
  if (!entries.length) return null;
  const more = entries.slice(SHOWN);
  const all = controllers.reduce((total, each) => total + (each.gone ? 0 : each.notDone + (each.mappingFailed || 0)), 0);
  return h("section", { class: "failing", "aria-labelledby": "failing-title" },
    h("h2", { id: "failing-title" }, "Failing", h("small", null, count(Math.max(all, entries.length)))),
    h("ul", null, entries.slice(0, SHOWN).map(failure)),
    more.length > 0 && h("details", null, h("summary", null, `${more.length} more${all > entries.length ? ` of ${count(all)}` : ""}`), h("ul", null, more.map(failure))));
}

function failure(each) {
  const unmapped = each.outcome === "unmapped";
  const again = each.until === null ? "waits for a change" : each.until > live.at ? `again in ${seconds(each.until - live.at)}` : "again now";
  const times = each.attempts === 1 ? "once" : `${count(each.attempts)} times`;
  const ago = `${seconds(Math.max(0, live.at - each.at))} ago`;
  const what = each.outcome === "slowed" ? `slowed, ${ago}` : unmapped ? `its change has not been mapped for ${seconds(Math.max(0, live.at - each.at))}, failed ${times}` : `failed ${times}, last ${ago}`;
  // The rest says it of an unmapped change, and nothing is pending of what waits for a change.
  const pending = each.pendingSince === null || unmapped ? "" : `, pending for ${seconds(Math.max(0, live.at - each.pendingSince))}`;
  return h("li", { key: each.controller + each.process + each.outcome + resourceLink(each.resource) },
    h("a", { href: resourceLink(each.resource) }, h("span", { class: "kind" }, kind(each.resource.type)), " ", named(each.resource)),
    h("span", { class: "error" }, each.error),
    h("span", { class: "meta" }, h("a", { href: controllerLink(each.controller) }, each.controller), `${each.process && ` (${each.process})`}, ${what}, ${again}${pending}`),
    !each.process && !unmapped && retryButton(each.controller, each.resource));
}

/** Return the work that has been pending for longer than a minute, as `headway why --stuck` lists it. */
function stuck(list) {
  if (!list.items.length && !list.unreachable.length) return null;
  const more = list.items.slice(SHOWN);
  return h("section", { class: "failing stuck", "aria-labelledby": "stuck-title" },
    h("h2", { id: "stuck-title" }, "Stuck", h("small", null, ` ${count(list.items.length + list.more)} pending for longer than a minute`)),
    h("ul", null, list.items.slice(0, SHOWN).map(stuckItem)),
    more.length > 0 && h("details", null, h("summary", null, `${more.length} more${list.more ? ` of ${count(more.length + list.more)}` : ""}`), h("ul", null, more.map(stuckItem))),
    list.unreachable.length > 0 && h("p", { class: "empty" }, `Not known of processes that do not answer: ${list.unreachable.join(", ")}`));
}

function stuckItem(each) {
  const { resource } = each;
  const attempt = each.attempt < 2 ? "" : each.state === "unmapped" ? `, failed ${count(each.attempt)} times` : `, for attempt ${count(each.attempt)}`;
  return h("li", { key: `${each.controller} ${each.process} ${each.state} ${resourceLink(resource)}` },
    resource.name ? h("a", { href: resourceLink(resource) }, h("span", { class: "kind" }, kind(resource.type)), " ", named(resource)) : h("a", { href: controllerLink(each.controller) }, each.controller),
    h("span", { class: "error" }, each.error),
    h("span", { class: "meta" }, `${each.controller} (${each.process}), ${each.state} since ${moment(each.since)}${attempt}`));
}

const HEADS = [["Rate", "rate"], ["Failed", "failures"], ["Queued", "queued"], ["Running", "running"], ["Backing off", "resting"], ["Not done", "notDone"], ["Oldest queued", "oldest"], ["Lag", "lag"]];

/** Return the numbers of controllers; those of other processes have no sparklines. */
function table(controllers, here = true) {
  return h("div", { class: "wide" }, h("table", { class: "controllers" },
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Controller"), h("th", { scope: "col" }, "State"), h("th", { scope: "col" }, here ? "15 minutes" : "Process"), HEADS.map(([head]) => h("th", { scope: "col", class: "number" }, head)))),
    h("tbody", null, controllers.map((each) => h("tr", { key: here ? each.name : `${each.name} ${each.process}`, class: tone(each) },
      h("th", { scope: "row" }, h("a", { href: controllerLink(each.name) }, each.name)),
      h("td", { class: "state" }, h("span", { class: "dot", "aria-hidden": "true" }), stateText(each), each.phase === "standby" && each.leader && h("small", null, `${each.leader} holds the lease`), each.gone && h("small", null, `since ${moment(each.gone)}`), each.mappingFailed > 0 && h("small", null, unmappedText(each.mappingFailed)), each.problem && h("small", null, each.problem)),
      here ? h("td", { class: "sparks" }, sparkline(live.history.get(each.name) || [], each.name)) : h("td", { class: "process", "data-label": "Process" }, each.process),
      cell("Rate", rate(each.rate)), cell("Failed", rate(each.failures), each.failures > 0), cell("Queued", count(each.queued)), cell("Running", count(each.running)),
      cell("Backing off", count(each.resting)), cell("Not done", count(each.notDone), each.notDone > 0), cell("Oldest queued", each.oldest ? seconds(each.oldest) : "–"), cell("Lag", count(each.lag)))))));
}

function cell(label, text, bad = false) {
  return h("td", { class: "number" + (bad ? " bad" : ""), "data-label": label }, text);
}

/** Return for how long a controller has been in the state that is shown. */
function lasting(of) {
  const time = of.paused !== null ? of.pausedSeconds : of.seconds;
  return time > 0 ? ` for ${seconds(time)}` : "";
}

/** Return the view of one controller. */
export function controllerView(name) {
  const of = live.controllers.find((each) => each.name === name);
  const others = live.elsewhere.filter((each) => each.name === name);
  markAlone([...live.controllers, ...live.elsewhere]);
  if (!of && others.length) {
    return [
      h("nav", { class: "crumbs", "aria-label": "Breadcrumbs" }, h("a", { href: "#/" }, "Overview")),
      h("h1", null, h("span", { class: "kind" }, "Controller"), " ", name),
      h("p", { class: "actions" }, h("a", { class: "button", href: typeLink(others[0].manages) }, "Resources of " + kind(others[0].manages)), pauseButtons(byName(others).get(name))),
      failing(live.failing.filter((each) => each.controller === name), others),
      elsewhere(others),
    ];
  }
  if (!of) return [h("h1", null, name), h("p", { class: "empty" }, live.connected ? "No controller of this name that you may observe runs for this server." : "Connecting…")];
  const points = live.history.get(name) || [];
  return [
    h("nav", { class: "crumbs", "aria-label": "Breadcrumbs" }, h("a", { href: "#/" }, "Overview")),
    h("h1", null, h("span", { class: "kind" }, "Controller"), " ", name),
    stale(),
    h("p", { class: "state-line " + tone(of) }, h("span", { class: "dot", "aria-hidden": "true" }), stateText(of), of.paused ? `: ${of.paused}` : "", of.leader ? `: process ${of.leader} runs it` : "", lasting(of), of.restarts ? `, after ${count(of.restarts)} restarts` : ""),
    of.problem && h("p", { class: "problem" }, `It ${of.problem}.`),
    of.writesHeld && h("p", { class: "problem" }, `It ${of.writesHeld}.`),
    of.mappingFailed > 0 && h("p", { class: "problem" }, `${unmappedText(of.mappingFailed)}, because a mapper or predicate raised: it may concern any ${kind(of.manages)}.`),
    h("p", { class: "actions" }, of.manages && h("a", { class: "button", href: typeLink(of.manages) }, "Resources of " + kind(of.manages)), pauseButtons(of)),
    failing(live.failing.filter((each) => each.controller === name), [of, ...others]),
    of.priming.length > 0 && h("section", { class: "priming" }, h("h2", null, "Priming"), bars(of.priming)),
    h("div", { class: "charts" }, chart(points, "rate", "Reconciles a second", rate), chart(points, "failures", "Failed a second", rate), chart(points, "queued", "Queued", count), chart(points, "lag", "Lag in revisions", count)),
    h("section", { "aria-labelledby": "numbers-title" }, h("h2", { id: "numbers-title" }, "Now"),
      h("dl", { class: "facts" }, [["Running", count(of.running)], ["Backing off", count(of.resting)], ["Scheduled", count(of.scheduled)], ["Not done", count(of.notDone), of.notDone > 0], ["Not yet mapped", count(of.unmapped), of.mappingFailed > 0], ["Oldest ready key", of.oldest ? seconds(of.oldest) : "–"], ["Process", of.process]].map(([head, text, bad]) => h("div", null, h("dt", null, head), h("dd", { class: bad ? "bad" : null }, text))))),
    elsewhere(others),
  ];
}
