// Sparklines and charts of the last 15 minutes, and the graph of controllers and types.

import { h } from "./dom.js";
import { live } from "./live.js";
import { controllerLink, count, kind, rate, typeLink, unmappedText } from "./text.js";

const SECONDS = 900; // the time that a chart shows
const GAP = 150; // other processes are asked once a minute while nobody watches

/** Return the numbers of a controller in the last 15 minutes. */
export function pointsOf(controller) {
  return live.history.get("answers" in controller ? `${controller.name} ${controller.process}` : controller.name) || [];
}

/** Return the parts of a line without gaps, as paths to the right end of a chart, which is now. */
function parts(points, field, width, height, top) {
  const found = [];
  points.forEach((each, index) => {
    const x = Math.max(0, width * (1 - (live.at - each.at) / SECONDS)).toFixed(1);
    const y = (height - 1.5 - (each[field] / top) * (height - 3)).toFixed(1);
    if (!index || each.at - points[index - 1].at > GAP) found.push({ first: x, path: `M${x},${y}` });
    else found[found.length - 1].path += `L${x},${y}`;
    found[found.length - 1].last = x;
  });
  return found;
}

function line(points, field, width, height, top) {
  return parts(points, field, width, height, top).map((each) => each.path).join("");
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
    points.length > 1 && h("path", { class: "rate", d: line(points, "rate", width, height, top) }),
    failed && points.length > 1 && h("path", { class: "failures", d: line(points, "failures", width, height, top) }));
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
      drawn && h("path", { class: "area", d: parts(points, field, width, height, peak || 1).map((each) => `${each.path}L${each.last},${height}L${each.first},${height}Z`).join("") }),
      drawn && h("path", { class: "line", d: line(points, field, width, height, peak || 1) })),
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

const pen = document.createElement("canvas").getContext("2d");
const widths = new Map(); // by font and text

function widthOf(text, font) {
  const known = font + text;
  if (widths.size > 5000) widths.clear();
  if (!widths.has(known)) {
    pen.font = font;
    widths.set(known, pen.measureText(text).width);
  }
  return widths.get(known);
}

/** Return a text that is at most so wide. Names that are alike differ at their ends, so a long one loses its middle. */
function cut(text, most, font) {
  if (widthOf(text, font) <= most) return text;
  let [kept, more] = [0, text.length - 1];
  while (kept < more) {
    const tried = Math.ceil((kept + more) / 2);
    if (widthOf(shortened(text, tried), font) <= most) kept = tried;
    else more = tried - 1;
  }
  return shortened(text, kept);
}

function shortened(text, kept) {
  const end = Math.floor(kept * 0.4);
  return text.slice(0, kept - end) + "…" + text.slice(text.length - end);
}

/** Return a line of text of a box, cut to its room, with the whole of it as a title. */
function words(text, style, x, y, room) {
  const font = `${style === "name" ? "600 13px" : "12px"} system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;
  const shown = cut(text, room, font);
  return h("text", { class: style, x, y }, shown, shown !== text && h("title", null, text));
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
  const x = box.x + 30, y = box.y, room = box.width - 30 - 16;
  const state = of ? stateText(of) : "not running";
  const numbers = of && of.phase === "standby" && of.leader ? `${of.leader} holds the lease` : of && !of.gone && of.answers !== false ? `${rate(of.rate)}   ${of.queued ? count(of.queued) + " queued" : of.rate ? "" : "idle"}${of.lag ? "   lag " + count(of.lag) : ""}` : "";
  const bad = of && !of.gone ? [of.notDone && `${count(of.notDone)} not done`, of.mappingFailed && unmappedText(of.mappingFailed)].filter(Boolean).join(", ") : "";
  return boxed(graph, box, controllerLink(box.name), `Controller ${box.name}: ${state}. ${numbers} ${bad}`, "controller " + (of ? tone(of) : "quiet"), graph.boxHeight / 2,
    h("circle", { class: "dot", cx: box.x + 17, cy: y + 20, r: 5 }),
    words(box.name, "name", x, y + 24, room),
    words(state, "state", x, y + 41, room),
    words(bad || numbers, bad ? "bad" : "numbers", x, y + 57, room - 6));
}

function typeBox(graph, box, of) {
  const x = box.x + 14, y = box.y, room = box.width - 28;
  const numbers = of && of.resources !== null && of.resources !== undefined ? count(of.resources) + (of.resources === 1 ? " resource" : " resources") : "";
  const bad = of && of.cutOff ? "cut off" : of && of.undecodable ? count(of.undecodable) + " undecodable" : "";
  return boxed(graph, box, typeLink(box.name), `Type ${box.name}: ${numbers} ${bad}`, "type", 5,
    words(kind(box.name), "name", x, y + 24, room),
    words(box.name, "state", x, y + 41, room),
    words(bad || numbers, bad ? "bad" : "numbers", x, y + 57, room));
}
