// The search for resources of a type. The server examines a bounded number at a time, and this goes on as asked.

import { h, render } from "./dom.js";
import { ask } from "./api.js";
import { live } from "./live.js";
import { age, count, kind, moment, resourceLink, typeLink } from "./text.js";
import { createButton } from "./actions.js";
import { sortHead, sortList, sorted } from "./sorting.js";

const ROWS = 50;
const AGAIN = 3000;
const STATES = ["", "TRUE", "FALSE", "UNKNOWN"];

/** What was searched for last: a view that is opened again goes on with it, and so does the first view of a type. */
let asked = { type: "", q: "" };

/** A view of the resources of a type. */
export class Resources {
  constructor(main, type, redraw) {
    this.main = main;
    this.type = type;
    this.redraw = redraw;
    if (asked.type && asked.type !== type) asked = { type, q: "" };
    asked.type = type;
    this.query = { q: asked.q, partition: "", namespace: "", condition: "", state: "", failing: "" };
    this.rows = [];
    this.columns = []; // the titles of the columns that the type declares
    this.cursor = "";
    this.examined = 0;
    this.busy = false;
    this.error = "";
    this.timer = null;
    if (type) this.search();
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.typing);
    this.aborter?.abort();
  }

  async search(quietly = false) {
    clearTimeout(this.timer);
    if (!this.type) {
      // A search is within a type. The page says so, and asks nothing.
      return this.redraw();
    }
    this.aborter?.abort();
    const mine = this.aborter = new AbortController();
    if (!quietly) Object.assign(this, { rows: [], cursor: "", examined: 0 });
    await this.step(mine, quietly);
  }

  /** Search on, until a page is full or everything is examined. */
  async step(mine = this.aborter, quietly = false) {
    this.busy = !quietly;
    this.redraw();
    const wanted = (quietly ? 0 : this.rows.length) + ROWS;
    let [rows, cursor, examined] = quietly ? [[], "", 0] : [this.rows, this.cursor, this.examined];
    try {
      do {
        const answer = await ask("/page/search", { type: this.type, ...this.query, cursor, rows: Math.min(ROWS, wanted - rows.length) }, mine.signal);
        rows = [...rows, ...answer.rows];
        this.columns = answer.columns;
        cursor = answer.cursor || "";
        examined += answer.examined || 0;
        if (!quietly) { Object.assign(this, { rows, cursor, examined, error: "" }); this.redraw(); }
      } while (cursor && rows.length < wanted && !quietly);
      Object.assign(this, { rows, cursor, examined, error: "" });
    } catch (error) {
      if (error.name === "AbortError") return;
      this.error = error.message;
    }
    this.busy = false;
    this.redraw();
    // What one request has found is looked at again; more would be asked for again and again.
    if (!this.error && this.rows.length <= ROWS && this.examined <= 10000) this.timer = setTimeout(() => this.search(true), AGAIN);
  }

  set(name, value) {
    this.query = { ...this.query, [name]: value.trim() };
    asked.q = this.query.q;
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.search(), 200);
  }

  content() {
    // The app's types come first.
    const types = [...live.types].sort((a, b) => a.own - b.own || a.type.localeCompare(b.type));
    const scope = this.scope;
    return [
      h("h1", null, "Resources"),
      h("form", { class: "search", role: "search", onsubmit: (event) => { event.preventDefault(); this.search(); } },
        h("label", { class: "type" }, "Type", h("select", { id: "type", value: this.type, onchange: (event) => { location.hash = typeLink(event.target.value); } },
          h("option", { value: "", key: "" }, "Choose a type"),
          this.options(types.filter((each) => !each.own), ""), this.options(types.filter((each) => each.own), "Headway’s own"))),
        h("label", { class: "text" }, "Name contains", h("input", { id: "search", type: "search", autocomplete: "off", spellcheck: "false", value: this.query.q, oninput: (event) => this.set("q", event.target.value) })),
        scope !== "cluster" && this.field("Partition", "partition"),
        scope === "namespace" && this.field("Namespace", "namespace"),
        this.field("Condition", "condition", "any"),
        h("label", null, "State", h("select", { value: this.query.state, onchange: (event) => this.set("state", event.target.value) }, STATES.map((each) => h("option", { key: each, value: each }, each || "any")))),
        h("label", { class: "check" }, h("input", { type: "checkbox", name: "failing", checked: this.query.failing !== "", onchange: (event) => this.set("failing", event.target.checked ? "yes" : "") }), "Failing only"),
        createButton(this.type)),
      this.error ? h("p", { class: "problem", role: "alert" }, this.error) : this.type ? this.found() : this.all(types),
    ];
  }

  get scope() {
    return live.types.find((each) => each.type === this.type)?.scope;
  }

  /** Return the heads of the table, each with the value that its column is sorted by. */
  get heads() {
    const units = { cluster: [], partition: ["Partition"] }[this.scope] || ["Partition", "Namespace"];
    const own = Object.fromEntries(this.columns.map((title, at) => [title, (each) => each.columns[at]]));
    return {
      Name: (each) => each.name, ...Object.fromEntries(units.map((unit) => [unit, (each) => each[unit.toLowerCase()]])), ...own,
      Conditions: (each) => each.conditions.map((one) => `${one.type} ${one.state}`).join(), Failing: (each) => each.failing?.[0]?.error, Age: (each) => live.at - each.created, Version: (each) => each.version,
    };
  }

  field(label, name, empty = "any") {
    return h("label", { key: name }, label, h("input", { name, placeholder: empty, autocomplete: "off", spellcheck: "false", oninput: (event) => this.set(name, event.target.value) }));
  }

  options(types, group) {
    const made = types.map((each) => h("option", { key: each.type, value: each.type, selected: each.type === this.type }, `${each.kind} (${each.type})`));
    return group && made.length ? h("optgroup", { key: group, label: group }, made) : made;
  }

  all(types) {
    const listed = (some) => h("ul", { class: "types" }, some.map((each) => h("li", { key: each.type }, h("a", { href: typeLink(each.type) }, h("strong", null, each.kind), h("small", null, each.type)), h("span", { class: "number", title: each.resources === null || each.resources === undefined ? "not counted" : null }, count(each.resources)))));
    const [mine, own] = [false, true].map((which) => types.filter((each) => each.own === which));
    const list = h("div", { key: "types" }, mine.length > 0 && listed(mine), own.length > 0 && [h("h2", { class: "own-types" }, "Headway’s own types"), listed(own)]);
    const filled = Object.values(this.query).some(Boolean);
    const which = this.query.q ? `Choose a type to search for “${this.query.q}”.` : "Choose a type to search in.";
    return [live.denied && h("p", { key: "denied", class: "problem", role: "alert" }, live.denied), filled && h("p", { key: "choose", class: "meta", role: "status" }, which), list];
  }

  /** Return whether a column has nothing but numbers. */
  isNumber(title) {
    const at = this.columns.indexOf(title);
    return at >= 0 && this.rows.every((each) => /^(-?\d+(\.\d+)?)?$/.test(each.columns[at] ?? ""));
  }

  found() {
    const { heads } = this;
    const text = this.busy ? `Searching… ${count(this.rows.length)} found` : `${count(this.rows.length)}${this.cursor ? " or more" : ""} found`;
    return h("section", { "aria-label": "Found" },
      h("p", { class: "meta", role: "status" }, text + (this.examined ? `, ${count(this.examined)} examined` : "")),
      this.rows.length > 0 && sortList(this.type, Object.keys(heads), this.redraw),
      this.rows.length > 0 && h("div", { class: "wide" }, h("table", { class: "found" },
        h("thead", null, h("tr", null, Object.keys(heads).map((head) => sortHead(this.type, head, this.redraw, { class: ["Age", "Version"].includes(head) || this.isNumber(head) ? "number" : null })))),
        h("tbody", null, sorted(this.type, this.rows, heads).map((each) => this.row(each, heads))))),
      !this.busy && !this.rows.length && h("p", { class: "empty" }, `No ${kind(this.type)} fits this.`),
      this.cursor && !this.busy && h("button", { type: "button", onclick: () => this.step() }, "Search on"));
  }

  row(each, heads) {
    const ref = { type: this.type, partition: each.partition, namespace: each.namespace, name: each.name };
    return h("tr", { key: resourceLink(ref) },
      h("th", { scope: "row" }, h("a", { href: resourceLink(ref) }, each.name), each.deleting && h("span", { class: "badge warn" }, "deleting")),
      ["Partition", "Namespace"].map((unit) => unit in heads && h("td", { "data-label": unit, class: each[unit.toLowerCase()] === "default" ? "none" : null }, each[unit.toLowerCase()])),
      this.columns.map((title, at) => h("td", { key: "own " + title, "data-label": title, class: (this.isNumber(title) ? "number" : "own-column") + (each.columns[at] ? "" : " none") }, each.columns[at] || "–")),
      h("td", { class: each.conditions.length ? null : "none", "data-label": "Conditions" }, each.conditions.length ? each.conditions.map(badge) : "–"),
      h("td", { class: each.failing?.length === 0 ? "fails none" : "fails", "data-label": "Failing" }, fails(each.failing)),
      h("td", { class: "number", "data-label": "Age", title: each.created === null ? null : moment(each.created) }, age(each.created, live.at)),
      h("td", { class: "number", "data-label": "Version" }, each.version));
  }
}

// What fails of a resource: its last failure, and how many more controllers fail for it.
function fails(failing) {
  if (!failing) return h("span", { class: "empty", title: "You may not observe it." }, "not shown");
  if (!failing.length) return "–";
  const [last, ...others] = failing;
  const times = last.attempts === 1 ? "once" : `${count(last.attempts)} times`;
  const what = last.outcome === "slowed" ? "slowed" : last.outcome === "unmapped" ? `not mapped, failed ${times}` : `failed ${times}`;
  return [h("span", { class: "error" }, last.error), h("small", null, `${last.controller}, ${what}${others.length ? `, and ${count(others.length)} more` : ""}`)];
}

/** Return a condition as a badge. */
export function badge(condition, index) {
  return h("span", { key: index + condition.type, class: "badge " + ({ TRUE: "good", FALSE: "bad" }[condition.state] || "quiet") }, `${condition.type} ${condition.state.toLowerCase()}`);
}
