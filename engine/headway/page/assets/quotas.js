// The quotas, with their use: those that are nearest to their limit first.

import { h } from "./dom.js";
import { rounded } from "./exact.js";
import { Polled } from "./polled.js";
import { bytes, count, resourceLink } from "./text.js";
import { sortHead, sortList, sorted } from "./sorting.js";

const BY = { Quota: (each) => each.name, "Limits": place, Resources: (each) => each.resources, Bytes: (each) => each.bytes, Used: (each) => each.used, Refused: (each) => each.refused };

function place(each) {
  return [each.partition, each.namespace].filter(Boolean).join("/") + (each.type ? ` ${each.type}` : "");
}

/** A view of the quotas. */
export class Quotas extends Polled {
  constructor(redraw) {
    super(redraw, "/page/quotas", 5000);
  }

  content() {
    return [h("h1", null, "Quotas"), this.body()];
  }

  list() {
    const { quotas, more } = this.found;
    if (!quotas.length) return h("p", { class: "empty" }, "No quota is declared. A quota is a resource of type tenancy.v1.Quota.");
    const number = (name) => !["Quota", "Limits"].includes(name);
    return h("section", { "aria-label": "Quotas" },
      h("p", { class: "meta", role: "status" }, `${count(quotas.length + more)} declared${more ? `, of which ${count(quotas.length)} are shown` : ""}`),
      sortList("quotas", Object.keys(BY), this.redraw),
      h("table", { class: "found quotas" },
        h("thead", null, h("tr", null, Object.keys(BY).map((name) => sortHead("quotas", name, this.redraw, { class: number(name) && name !== "Used" ? "number" : null }, number(name))))),
        h("tbody", null, sorted("quotas", quotas, BY).map((each) => this.row(each)))));
  }

  row(each) {
    const of = (use, most, text) => `${text(use)}${most === null ? "" : ` of ${text(rounded(most))}`}`;
    const tone = each.used >= 1 ? "bad" : each.used >= 0.8 ? "warn" : "good";
    return h("tr", { key: each.name, class: tone },
      h("th", { scope: "row" }, h("a", { href: resourceLink({ type: "tenancy.v1.Quota", partition: "", namespace: "", name: each.name }) }, each.name)),
      h("td", { "data-label": "Limits" }, [each.partition, each.namespace].filter(Boolean).join("/"), each.type && h("small", null, ` ${each.type}`)),
      h("td", { class: "number", "data-label": "Resources" }, of(each.resources, each.maxResources, count)),
      h("td", { class: "number", "data-label": "Bytes" }, of(each.bytes, each.maxBytes, bytes)),
      h("td", { class: "used", "data-label": "Used" }, h("progress", { max: 1, value: Math.min(each.used, 1), "aria-label": `${each.name}: ${Math.round(each.used * 100)} % used` }), h("span", { class: "counts" }, `${Math.round(each.used * 100)} %`)),
      h("td", { class: "number" + (each.refused ? " bad" : " none"), "data-label": "Refused" }, count(each.refused)));
  }
}
