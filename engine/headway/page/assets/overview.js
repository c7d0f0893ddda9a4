// The overview: what all controllers do, and what fails.

import { h, phone } from "./dom.js";
import { live } from "./live.js";
import { byName, markAlone, picture } from "./charts.js";
import { controllerLink, count, rate } from "./text.js";
import { bars, stale, table, worstFirst } from "./controllers.js";
import { problems } from "./problems.js";

const SHOWN = 10;

/** Return the content of the overview. */
export function overview() {
  const everywhere = [...live.controllers, ...live.elsewhere];
  markAlone(everywhere);
  return [
    h("h1", { class: "hidden" }, "Overview"),
    stale(),
    summary(everywhere.filter((each) => !each.gone && each.answers !== false), live.absent),
    priming(live.controllers),
    problems(everywhere),
    refused(live.refused),
    // On a phone, the graph says less than the list, and needs more room.
    ...(phone.matches ? [listed(everywhere), graph(everywhere)] : [graph(everywhere), listed(everywhere)]),
  ];
}

function graph(controllers) {
  if (!live.graph?.boxes.length) return null;
  return h("section", { key: "graph", "aria-labelledby": "graph-title" },
    h("h2", { id: "graph-title" }, "Graph"),
    h("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "The graph, which scrolls", onscroll: (event) => { event.target.dataset.drawn = "yes"; hint(event.target); } }, picture(live.graph, controllers, live.types)),
    h("p", { class: "hint", "aria-hidden": "true" }, h("span", { class: "sideways" }, "Scroll the graph sideways to see all of it."), h("span", { class: "down" }, "Scroll the graph to see all of it.")),
    h("p", { class: "legend", "aria-hidden": "true" }, h("span", { class: "triggers" }, "a change triggers"), h("span", { class: "reads" }, "reads"), h("span", { class: "writes" }, "writes")));
}

/** Return the controllers, or those that need attention first, if there are many. */
function listed(everywhere) {
  const mine = everywhere.filter((each) => !each.own), own = live.controllers.filter((each) => each.own);
  const shown = mine.length > SHOWN ? worstFirst(mine).slice(0, SHOWN) : mine;
  const more = mine.length + live.elsewhereMore - shown.length;
  return h("section", { key: "controllers", "aria-labelledby": "controllers-title" },
    h("h2", { id: "controllers-title" }, "Controllers", more > 0 && h("a", { class: "all", href: "#/controllers" }, `All ${count(mine.length + live.elsewhereMore)}`)),
    mine.length ? table(shown) : h("p", { class: "empty" }, "No controller that you may observe runs for this server."),
    own.length > 0 && h("details", { class: "own" }, h("summary", null, `Headway’s own (${own.length})`), table(own)));
}

/** Show whether a graph is wider than the page. One that the reader has not scrolled begins at what is wrong in it. */
export function fit(main) {
  const scroller = main.querySelector(".scroller");
  if (!scroller) return;
  const wrong = scroller.querySelector(".box.bad") || scroller.querySelector(".box.warn");
  if (!scroller.dataset.drawn && wrong) {
    const [box, all] = [wrong.getBoundingClientRect(), scroller.getBoundingClientRect()];
    scroller.scrollLeft = box.right - all.right + 12;
    scroller.scrollTop = box.bottom - all.bottom + 12;
    scroller.dataset.drawn = "yes";
  }
  hint(scroller);
}

function hint(scroller) {
  const left = scroller.scrollWidth - scroller.clientWidth;
  scroller.classList.toggle("wider", left > 4);
  scroller.classList.toggle("taller", scroller.scrollHeight - scroller.clientHeight > 4);
  scroller.classList.toggle("to-the-left", scroller.scrollLeft > 4);
  scroller.classList.toggle("to-the-right", scroller.scrollLeft < left - 4);
}

/** Return what the limits on callers have refused since the server began, or since they changed. */
function refused(limits) {
  if (!limits.length) return null;
  return h("section", { key: "refused", class: "refused", "aria-labelledby": "refused-title" },
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
  const [state, toned] = absent.length ? [`${absent.length} running nowhere`, "wrong"] : !mine ? ["none is connected", "warn"] : failing ? [`${failing} failing`, "wrong"] : idle ? [`${idle} standing by`, "warn"] : unready ? [`${unready} not ready`, "warn"] : paused ? [`${paused} paused`, "warn"] : ["all ready", "good"];
  const pending = live.stuck.items.length + live.stuck.more;
  const [wrong, unmapped] = [sum("notDone"), sum("mappingFailed")];
  // A rate that rounds to nothing says nothing.
  const failed = sum("failures") >= 0.05 ? `${rate(sum("failures"))} failed` : "";
  const below = [unmapped > 0 && `${count(unmapped)} of them not mapped`, failed].filter(Boolean).join(", ");
  return h("dl", { class: "tiles" },
    tile("Controllers", count(mine), state, toned),
    tile("Failing", count(wrong + unmapped), below || (wrong + unmapped ? "retried later" : "nothing"), wrong + unmapped ? "bad" : "good"),
    tile("Stuck", count(pending), pending ? "for over a minute" : "nothing", pending ? "bad" : "good"),
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
  return h("section", { key: "priming", class: "priming", "aria-labelledby": "priming-title" },
    h("h2", { id: "priming-title" }, "Priming"),
    all.map((controller) => h("div", { key: controller.name, class: "group" },
      h("h3", null, h("a", { href: controllerLink(controller.name) }, controller.name)),
      bars(controller.priming))));
}
