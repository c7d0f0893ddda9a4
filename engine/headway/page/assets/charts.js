// Sparklines and charts of the last 15 minutes, and the graph of controllers and types.

import { h } from "./dom.js";
import { POINTS } from "./live.js";
import { controllerLink, count, kind, rate, typeLink, unmappedText } from "./text.js";

function line(values, width, height, top) {
  const step = width / (POINTS - 1);
  const begin = width - (values.length - 1) * step;
  return values.map((value, index) => `${index ? "L" : "M"}${(begin + index * step).toFixed(1)},${(height - 1.5 - (value / top) * (height - 3)).toFixed(1)}`).join("");
}

/** Return a small chart of a controller: its rate, and in red the failures among it. */
export function sparkline(points, name) {
  const [width, height] = [120, 26];
  const top = Math.max(...points.map((each) => each.rate), 0) || 1;
  const rates = points.map((each) => each.rate);
  const failures = points.map((each) => each.failures);
  const failed = failures.some((each) => each > 0);
  const last = points[points.length - 1];
  const text = last ? `${name}: up to ${rate(Math.max(...rates))} in the last 15 minutes, up to ${rate(Math.max(...failures))} failed` : `${name}: no numbers yet`;
  return h("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text, preserveAspectRatio: "none" },
    h("path", { class: "base", d: `M0,${height - 1.5}H${width}` }),
    points.length > 1 && h("path", { class: "rate", d: line(rates, width, height, top) }),
    failed && points.length > 1 && h("path", { class: "failures", d: line(failures, width, height, top) }));
}

/** Return a larger chart of one number. */
export function chart(points, field, title, shown) {
  const [width, height] = [320, 72];
  const values = points.map((each) => each[field]);
  const peak = Math.max(0, ...values);
  const drawn = values.length > 1 && (field !== "failures" || peak > 0);
  const last = values.length ? values[values.length - 1] : null;
  return h("figure", { class: "chart " + field },
    h("figcaption", null, h("span", null, title), h("strong", null, shown(last))),
    h("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: now ${shown(last)}, peak ${shown(peak)}`, preserveAspectRatio: "none" },
      h("path", { class: "base", d: `M0,${height - 1.5}H${width}` }),
      drawn && h("path", { class: "area", d: `${line(values, width, height, peak || 1)}L${width},${height}L${(width - (values.length - 1) * width / (POINTS - 1)).toFixed(1)},${height}Z` }),
      drawn && h("path", { class: "line", d: line(values, width, height, peak || 1) })),
    h("div", { class: "scale", "aria-hidden": "true" }, h("span", null, "15 min ago"), h("span", null, "peak " + shown(peak)), h("span", null, "now")));
}

/** Mark the controllers on standby that no process here stands in for: then nobody here does their work. */
export function markAlone(controllers) {
  const by = byName(controllers);
  for (const each of controllers) each.alone = each.phase === "standby" && by.get(each.name).phase === "standby";
}

/** Return the tone of a controller: good, warn, bad or quiet. */
export function tone(controller) {
  if (controller.gone) return "bad";
  if (controller.answers === false) return "warn";
  if (controller.paused !== null || controller.writesHeld) return "warn";
  if (["priming", "starting"].includes(controller.phase)) return "warn";
  if (controller.phase === "standby") return controller.alone ? "warn" : "quiet";
  if (!controller.ready) return "bad";
  if (controller.notDone || controller.failures || controller.mappingFailed) return "bad";
  return "good";
}

/** Return the state of a controller in words. */
export function stateText(controller) {
  return controller.paused !== null ? "paused" : controller.state + (controller.writesHeld ? ", writes held back" : "");
}

function cut(text, most) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

// Several processes may have a controller: the graph shows one that runs it.
function rank(controller) {
  if (controller.gone) return 0;
  if (controller.answers === false) return 1;
  return controller.phase === "standby" ? 2 : 3;
}

/** Return the controllers by name, of all processes: of each name one that runs it, if there is one. */
export function byName(controllers) {
  const by = new Map();
  for (const each of controllers) if (!by.has(each.name) || rank(by.get(each.name)) < rank(each)) by.set(each.name, each);
  return by;
}

/** Return the graph, with the numbers of each controller and type. */
export function picture(graph, controllers, types) {
  const by = byName(controllers);
  const typed = new Map(types.map((each) => [each.type, each]));
  return h("svg", { class: "graph", viewBox: `0 0 ${graph.width} ${graph.height}`, width: graph.width, height: graph.height, role: "group", "aria-label": "The graph of controllers and types" },
    h("defs", null, ["triggers", "writes"].map((name) => h("marker", { id: "head-" + name, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 8, markerHeight: 8, orient: "auto-start-reverse", class: name }, h("path", { d: "M0,1 L10,5 L0,9 z" })))),
    graph.arrows.map((arrow) => h("path", { class: "arrow " + arrow.kind, d: arrow.path, [arrow.turned ? "marker-start" : "marker-end"]: `url(#head-${arrow.kind === "writes" ? "writes" : "triggers"})` }, h("title", null, arrow.said))),
    graph.boxes.map((box) => (box.type ? typeBox(graph, box, typed.get(box.name)) : controllerBox(graph, box, by.get(box.name)))));
}

function boxed(graph, box, href, label, classes, round, ...lines) {
  return h("a", { key: box.name, href, class: "box " + classes, "aria-label": label },
    h("rect", { x: box.x, y: box.y, width: box.width, height: graph.boxHeight, rx: round }),
    lines);
}

function controllerBox(graph, box, of) {
  const x = box.x + 30, y = box.y;
  const state = of ? stateText(of) : "not running";
  const numbers = of && of.phase === "standby" && of.leader ? `${of.leader} holds the lease` : of && !of.gone && of.answers !== false ? `${rate(of.rate)}   ${of.queued ? count(of.queued) + " queued" : of.rate ? "" : "idle"}${of.lag ? "   lag " + count(of.lag) : ""}` : "";
  const bad = of && !of.gone ? [of.notDone && `${count(of.notDone)} not done`, of.mappingFailed && unmappedText(of.mappingFailed)].filter(Boolean).join(", ") : "";
  return boxed(graph, box, controllerLink(box.name), `Controller ${box.name}: ${state}. ${numbers} ${bad}`, "controller " + (of ? tone(of) : "quiet"), graph.boxHeight / 2,
    h("circle", { class: "dot", cx: box.x + 17, cy: y + 20, r: 5 }),
    h("text", { class: "name", x, y: y + 24 }, cut(box.name, 23)),
    h("text", { class: "state", x, y: y + 41 }, cut(state, 27)),
    h("text", { class: bad ? "bad" : "numbers", x, y: y + 57 }, cut(bad || numbers, 30)));
}

function typeBox(graph, box, of) {
  const x = box.x + 14, y = box.y;
  const numbers = of && of.resources !== null && of.resources !== undefined ? count(of.resources) + (of.resources === 1 ? " resource" : " resources") : "";
  const bad = of && of.cutOff ? "cut off" : of && of.undecodable ? count(of.undecodable) + " undecodable" : "";
  return boxed(graph, box, typeLink(box.name), `Type ${box.name}: ${numbers} ${bad}`, "type", 5,
    h("text", { class: "name", x, y: y + 24 }, cut(kind(box.name), 24)),
    h("text", { class: "state", x, y: y + 41 }, cut(box.name, 30)),
    h("text", { class: bad ? "bad" : "numbers", x, y: y + 57 }, bad || numbers));
}
