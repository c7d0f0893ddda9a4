// What controllers have recorded of resources for their users: the newest events of all of them.

import { h } from "./dom.js";
import { live } from "./live.js";
import { Polled } from "./polled.js";
import { controllerLink, count, kind, moment, named, resourceLink } from "./text.js";
import { sortHead, sortList, sorted } from "./sorting.js";

const SHOWN = 1000;
const BY = { Last: (each) => each.last, Count: (each) => each.count, Resource: (each) => `${each.resource.type} ${named(each.resource)}`, Reason: (each) => each.reason, Text: (each) => each.text, Controller: (each) => each.controller };

/** A view of the events. */
export class Events extends Polled {
  constructor(redraw) {
    super(redraw, "/page/events", 5000, { q: "", partition: "", namespace: "", warnings: "" });
  }

  joined(found, cursor) {
    const before = cursor ? this.found : { events: [], dropped: 0 };
    const events = [...before.events, ...found.events].sort((a, b) => b.last - a.last);
    return { events: events.slice(0, SHOWN), dropped: before.dropped + found.dropped + events.slice(SHOWN).length, cursor: found.cursor };
  }

  content() {
    const field = (label, name, empty, id = null) => h("label", { key: name, class: id && "text" }, label, h("input", { id, name, type: id ? "search" : "text", placeholder: empty, autocomplete: "off", spellcheck: "false", oninput: (event) => this.set(name, event.target.value) }));
    return [
      h("h1", null, "Events"),
      this.form("events-search",
        field("Kind or name contains", "q", "", "search"), field("Partition", "partition", "any"), field("Namespace", "namespace", "any"),
        h("label", { class: "check" }, h("input", { type: "checkbox", name: "warnings", checked: this.query.warnings !== "", onchange: (event) => this.set("warnings", event.target.checked ? "yes" : "") }), "Warnings only")),
      this.body(),
    ];
  }

  list() {
    const { events, dropped, cursor } = this.found;
    const filtered = Object.values(this.query).some(Boolean);
    if (!events.length && !cursor) return h("p", { class: "empty" }, filtered ? "No event fits this." : "No controller has recorded an event. A reconciler records one by rt.event(…).");
    const head = (name) => sortHead("events", name, this.redraw, { class: name === "Count" ? "number" : null }, name === "Last" || name === "Count");
    return h("section", { "aria-label": "Events" },
      h("p", { class: "meta", role: "status" }, `${count(events.length)}${dropped ? ` of ${count(events.length + dropped)}` : ""}${cursor ? " or more" : ""}, the newest first`),
      sortList("events", Object.keys(BY), this.redraw),
      events.length > 0 && h("table", { class: "found events-found" },
        h("thead", null, h("tr", null, Object.keys(BY).map(head))),
        h("tbody", null, sorted("events", events, BY).map((each) => this.row(each)))),
      cursor && h("button", { type: "button", onclick: () => this.look(cursor) }, "Search on"));
  }

  row(each) {
    const known = [...live.controllers, ...live.elsewhere].some((one) => one.name === each.controller);
    return h("tr", { key: `${resourceLink(each.resource)} ${each.controller} ${each.reason} ${each.warning} ${each.text}` },
      h("td", { class: "since", "data-label": "Last" }, each.last === null ? "–" : h("time", { datetime: new Date(each.last * 1000).toISOString(), title: each.first === null ? null : `first at ${moment(each.first)}` }, moment(each.last))),
      h("td", { class: each.count > 1 ? "number" : "number none", "data-label": "Count" }, count(each.count)),
      h("th", { scope: "row" }, h("a", { href: resourceLink(each.resource) }, h("span", { class: "kind" }, kind(each.resource.type)), " ", named(each.resource))),
      h("td", { class: "reason", "data-label": "Reason" }, h("span", { class: "badge " + (each.warning ? "warn" : "quiet") }, each.reason)),
      h("td", { class: "text", "data-label": "Text" }, each.text),
      h("td", { "data-label": "Controller" }, known ? h("a", { href: controllerLink(each.controller) }, each.controller) : each.controller));
  }
}
