// One resource: its content, why it is or is not done, what happened to it, and its relatives.

import { h, phone } from "./dom.js";
import { parseExact, printExact } from "./exact.js";
import { ask, denied, whyLost } from "./api.js";
import { age, controllerLink, count, kind, moment, named, resourceLink, seconds, typeLink, unmappedText } from "./text.js";
import { badge } from "./resources.js";
import { deleteButton, editButton, retryButton } from "./actions.js";

/** A view of a resource, which follows it. */
export class Resource {
  constructor(ref, redraw) {
    this.ref = ref;
    this.redraw = redraw;
    this.shown = null;
    this.relatives = null;
    this.error = "";
    this.refused = false; // for good: asking again would get the same answer
    this.connect();
    this.look();
  }

  close() {
    this.closed = true;
    this.source?.close();
    clearTimeout(this.timer);
    clearTimeout(this.again);
  }

  get address() {
    return "/page/resource?" + new URLSearchParams(this.ref);
  }

  connect() {
    if (this.closed) return;
    this.source?.close();
    const mine = this.source = new EventSource(this.address);
    mine.addEventListener("resource", (event) => {
      const version = this.shown?.resource?.version;
      this.shown = parseExact(event.data);
      this.error = "";
      if (version !== this.shown.resource?.version) this.look();
      this.redraw();
    });
    mine.addEventListener("failed", (event) => this.lost(mine, JSON.parse(event.data)));
    mine.onerror = () => this.lost(mine, null);
  }

  async lost(of, failed) {
    if (of !== this.source || this.closed) return;
    of.close();
    let error = failed;
    try { error = await whyLost(this.address, failed); } catch (unreached) { error ||= unreached; }
    if (this.closed) return;
    this.error = error?.message ?? "";
    // What the caller may no longer see goes. An address that names nothing possible stays refused.
    if (denied(error)) Object.assign(this, { shown: null, relatives: null });
    this.refused = denied(error) || error?.status === 400;
    if (this.refused) clearTimeout(this.timer);
    else this.again = setTimeout(() => this.connect(), 2000);
    this.redraw();
  }

  async look() {
    clearTimeout(this.timer);
    let relatives = null, again = true;
    // A caller who may not read the resource may still observe it.
    try { relatives = await ask("/page/relatives", this.ref); } catch (error) { again = !denied(error); }
    if (this.closed) return;
    this.relatives = relatives;
    this.redraw();
    if (again && !this.refused) this.timer = setTimeout(() => this.look(), 10000);
  }

  content() {
    const { ref, shown } = this;
    const resource = shown?.resource;
    return [
      h("nav", { class: "crumbs", "aria-label": "Breadcrumbs" }, h("a", { href: "#/resources" }, "Resources"), " / ", h("a", { href: typeLink(ref.type) }, kind(ref.type)),
        ref.partition && ` / partition ${ref.partition}`, ref.namespace && ` / namespace ${ref.namespace}`),
      h("h1", null, h("span", { class: "kind" }, kind(ref.type)), " ", h("span", { class: "name" }, ref.name)),
      this.error && h("p", { key: "problem", class: "problem", role: "alert" }, this.error),
      !shown && !this.error && h("p", { key: "loading", class: "empty" }, "Loading…"),
      shown && this.badges(shown),
      shown && h("p", { key: "actions", class: "actions" }, resource && editButton(ref, resource), resource && deleteButton(ref, resource), this.retries()),
      shown && (phone.matches
        ? h("div", { key: "column" }, this.why(shown), this.status(resource), this.payload(shown), this.events(), this.timeline(shown), this.family(), this.metadata(resource))
        : h("div", { key: "columns", class: "columns" },
          h("div", null, this.why(shown), this.timeline(shown)),
          h("div", null, this.status(resource), this.payload(shown), this.metadata(resource), this.events(), this.family()))),
    ];
  }

  managing() {
    return (this.shown?.why?.states || []).filter((each) => each.role === "manages");
  }

  retries() {
    // Several processes may run a controller.
    const controllers = [...new Set(this.managing().map((each) => each.controller))];
    return controllers.map((each) => retryButton(each, this.ref, controllers.length > 1 ? `Reconcile now by ${each}` : "Reconcile now"));
  }

  badges(shown) {
    const states = this.managing();
    const concerned = (shown.why?.states || []).filter((each) => each.role !== "manages" && each.unmapped);
    const link = (each, tone, text) => h("a", { key: each.role + each.controller + " " + each.process, class: "badge " + tone, href: controllerLink(each.controller) }, `${each.controller}: ${text}`);
    return h("p", { key: "badges", class: "badges" },
      !shown.resource && shown.mayRead && h("span", { key: "absent", class: "badge warn" }, "not stored"),
      states.map((each) => link(each, tone(each, states), stateText(each))),
      concerned.map((each) => link(each, "warn", unmappedText(each.unmapped))),
      shown.resource && h("span", { key: "version", class: "meta" }, `version ${shown.resource.version}${shown.created === null ? "" : `, created ${age(shown.created, shown.why?.at ?? Date.now() / 1000)} ago`}`));
  }

  why(shown) {
    if (!shown.why) return h("section", { key: "not-why" }, h("h2", null, "Why"), h("p", { class: "empty" }, "You may not observe this resource."));
    return h("section", { key: "why", "aria-labelledby": "why-title" }, h("h2", { id: "why-title" }, "Why"),
      h("div", { class: "sentences" }, shown.why.sentences.map((pieces, index) => {
        const text = pieces.map((each) => each.text).join("");
        const depth = Math.min(3, Math.floor((text.length - text.trimStart().length) / 2));
        const code = depth >= 3;
        return h(code ? "code" : "p", { key: index, class: "depth" + depth + (/^ *(The last error:|Unmapped:|The (mapper|predicate|function) \S+ raised)/.test(text) ? " bad" : "") },
          pieces.map((each, at) => (each.ref || each.controller ? link(each, at) : at === 0 && !code ? each.text.trimStart() : code && at === 0 ? each.text.replace(/^ {6}/, "") : each.text)));
      })));
  }

  timeline(shown) {
    const entries = shown.why?.timeline || [];
    return h("section", { key: "timeline", "aria-labelledby": "timeline-title" }, h("h2", { id: "timeline-title" }, "Timeline"),
      entries.length ? h("ol", { class: "timeline" }, entries.map((each) => (each.what === "write" ? this.write(each) : this.run(each)))) : h("p", { class: "empty" }, "The journal has nothing about it."));
  }

  write(each) {
    return h("li", { key: each.id, class: "write" }, h("time", { datetime: new Date(each.at * 1000).toISOString() }, moment(each.at)), h("div", null, h("span", null, `${each.verb[0].toUpperCase()}${each.verb.slice(1)}`, each.by ? ` by ${each.by}` : " (writer unknown)"), h("small", null, `revision ${each.revision}`)));
  }

  run(each) {
    const bad = ["failed", "permanent"].includes(each.outcome);
    return h("li", { key: each.id, class: bad ? "run bad" : "run" }, h("time", { datetime: new Date(each.at * 1000).toISOString() }, moment(each.at)),
      h("div", null, h("span", null, `${each.controller}: ${each.outcome}`),
        h("small", null, each.alike > 1 ? `${each.attempts.toLowerCase()} alike, from ${moment(each.first)} on` : `attempt ${each.attempt}, ${seconds(each.seconds)}`),
        [["Because of", each.because], ["Read", each.read], ["Wrote", each.wrote]].map(([head, pieces]) => h("div", { key: head, class: "touched" }, head + ": ", pieces.map((piece, at) => (piece.ref ? link(piece, at) : piece.text)))),
        each.error && (each.traceback ? h("details", null, h("summary", { class: "error" }, each.error), h("pre", null, each.traceback)) : h("span", { class: "error" }, each.error))));
  }

  payload(shown) {
    const resource = shown.resource;
    if (!shown.mayRead) return h("section", { key: "not-payload" }, h("h2", null, "Payload"), h("p", { class: "empty" }, "You may not read this resource."));
    if (!resource) return null;
    return h("section", { key: "payload", "aria-labelledby": "payload-title" }, h("h2", { id: "payload-title" }, "Payload"),
      resource.undecodable ? h("p", { class: "problem" }, resource.undecodable) : h("pre", { class: "payload", tabindex: 0 }, printExact(resource.data ?? {}, 2)));
  }

  metadata(resource) {
    if (!resource) return null;
    const entries = Object.entries(resource.metadata || {});
    return h("section", { key: "metadata", "aria-labelledby": "metadata-title" }, h("h2", { id: "metadata-title" }, "Metadata"),
      entries.length ? h("dl", { class: "facts" }, entries.map(([name, value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value)))) : h("p", { class: "empty" }, "none"));
  }

  status(resource) {
    const statuses = Object.entries(resource?.status || {});
    if (!statuses.length) return null;
    return h("section", { key: "status", "aria-labelledby": "status-title" }, h("h2", { id: "status-title" }, "Status"),
      statuses.map(([key, status]) => h("div", { key, class: "group" },
        h("h3", null, key, status.observedGeneration !== resource.generation && h("small", null, " of an older generation")),
        h("ul", { class: "conditions" }, (status.conditions || []).map((each) => h("li", { key: each.type }, badge({ type: each.type, state: (each.state || "UNKNOWN").replace("STATE_", "") }, 0), h("span", null, [each.reason, each.message].filter(Boolean).join(": "))))))));
  }

  family() {
    const relatives = this.relatives;
    if (!relatives || (!relatives.owners.length && !relatives.owned.length)) return null;
    const link = (each) => h("a", { href: resourceLink(each) }, h("span", { class: "kind" }, kind(each.type)), " ", named(each));
    let tree = h("ul", null, relatives.owned.map((each) => h("li", { key: resourceLink(each) }, link(each))), relatives.ownedCount > relatives.owned.length && h("li", null, `and ${relatives.ownedCount - relatives.owned.length} more`));
    tree = h("ul", null, h("li", null, h("strong", null, h("span", { class: "kind" }, kind(this.ref.type)), " ", named(this.ref)), tree));
    for (const owner of relatives.owners) tree = h("ul", null, h("li", null, link(owner), tree));
    return h("section", { key: "tree", "aria-labelledby": "tree-title" }, h("h2", { id: "tree-title" }, "Owners and owned"), h("div", { class: "tree" }, tree));
  }

  events() {
    const events = this.relatives?.events || [];
    if (!events.length) return null;
    return h("section", { key: "events", "aria-labelledby": "events-title" }, h("h2", { id: "events-title" }, "Events"),
      events.map((each) => h("div", { key: each.name, class: "group" }, happened(each.data))));
  }
}

/** Return a piece of a sentence that refers to a resource or a controller. */
function link(piece, key) {
  return h("a", { key, href: piece.ref ? resourceLink(piece.ref) : controllerLink(piece.controller) }, piece.text);
}

const WRONG = ["waiting", "held", "slowed", "given up", "resting", "ended"];

/** Return how a controller does: a standby is well only beside one that works. */
function tone(it, all) {
  if (it.error) return "bad";
  if (it.paused || it.unmapped || WRONG.includes(it.state)) return "warn";
  if (it.state === "standby") return all.some((each) => each.controller === it.controller && each.state !== "standby") ? "quiet" : "warn";
  return ["idle", "scheduled"].includes(it.state) ? "good" : "quiet";
}

function stateText(it) {
  const held = it.state === "standby" && it.holder ? `, ${it.holder} holds the lease` : "";
  return (it.paused ? "paused" : it.state) + held + (it.unmapped ? `, ${unmappedText(it.unmapped)}` : "");
}

/** Return the entries of an event resource, the newest first; any other content as it is. */
function happened(data) {
  if (!Array.isArray(data.entries)) return h("pre", null, printExact(data, 1));
  return h("ul", { class: "events" }, [...data.entries].reverse().map((each, index) => h("li", { key: index },
    h("span", { class: "badge " + (each.warning ? "warn" : "quiet") }, String(each.reason)), h("span", null, String(each.text ?? "")),
    h("small", null, [each.count > 1 && `${count(each.count)} times`, each.last && `last at ${moment(Date.parse(each.last) / 1000)}`, each.controller].filter(Boolean).join(", ")))),
    data.dropped > 0 && h("li", null, h("small", null, `${count(data.dropped)} older ones were dropped`)));
}
