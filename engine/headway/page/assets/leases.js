// The leases that are held: by which process, since when, and until when.

import { h } from "./dom.js";
import { live } from "./live.js";
import { Polled } from "./polled.js";
import { controllerLink, count, moment, seconds } from "./text.js";

/** A view of the leases. */
export class Leases extends Polled {
  constructor(redraw) {
    super(redraw, "/page/leases", 2000, { prefix: "" });
  }

  content() {
    return [
      h("h1", null, "Leases"),
      this.form("leases-search",
        h("label", { class: "text" }, "Name begins with", h("input", { id: "search", type: "search", autocomplete: "off", spellcheck: "false", placeholder: "any, such as staff/", oninput: (event) => this.set("prefix", event.target.value) }))),
      this.body(),
    ];
  }

  list() {
    const { leases, more } = this.found;
    if (!leases.length) return h("p", { class: "empty" }, this.query.prefix ? "No lease is held whose name begins so." : "No lease is held.");
    return h("section", { "aria-label": "Leases that are held" },
      h("p", { class: "meta", role: "status" }, `${count(leases.length + more)} held${more ? `, of which the first ${count(leases.length)} are shown` : ""}`),
      h("table", { class: "found leases" },
        h("thead", null, h("tr", null, ["Lease", "Holder", "Since", "Renewed", "Ends", "Lasts", "Term"].map((head, at) => h("th", { scope: "col", class: at > 2 ? "number" : null }, head)))),
        h("tbody", null, leases.map((each) => this.row(each)))));
  }

  row(each) {
    // The lease of a controller has its name, and that of a shard also its number.
    const controller = each.name.replace(/#\d+$/, "");
    const known = [...live.controllers, ...live.elsewhere].some((one) => one.name === controller);
    const cell = (label, text) => h("td", { class: "number", "data-label": label }, text);
    return h("tr", { key: each.name },
      h("th", { scope: "row" }, known ? h("a", { href: controllerLink(controller) }, each.name) : each.name),
      h("td", { class: "holder", "data-label": "Holder" }, each.holder), h("td", { class: "since", "data-label": "Since" }, each.since === null ? "–" : moment(each.since)),
      cell("Renewed", `${seconds(Math.round(each.renewed))} ago`), cell("Ends", `in ${seconds(Math.round(each.ends))}`), cell("Lasts", seconds(each.ttl)), cell("Term", count(each.term)));
  }
}
