// Tables that a reader sorts by the heads of their columns, or by a list where the heads have no room.

import { h, phone } from "./dom.js";

const chosen = new Map(); // by table: the head, and whether the greatest comes first

/** Return rows in the order that was chosen for a table. `by` has a function to a row's value for each head. */
export function sorted(table, rows, by) {
  const { head, down } = chosen.get(table) || {};
  const value = by[head];
  if (!value) return rows;
  // What has no value stands last in either order.
  const missing = (it) => it === null || it === undefined || it === "";
  return rows.map((row) => [value(row), row]).sort(([a], [b]) => missing(a) - missing(b) || (down ? -1 : 1) * compare(a, b)).map(([, row]) => row);
}

function compare(a, b) {
  const numbers = [a, b].map((each) => (typeof each === "number" ? each : /^-?\d+(\.\d+)?$/.test(each) ? Number(each) : NaN));
  return numbers.some(Number.isNaN) ? String(a).localeCompare(String(b), "en", { numeric: true }) : numbers[0] - numbers[1];
}

function choose(table, head, redraw, down) {
  chosen.set(table, { head, down });
  redraw();
}

/** Return a head that sorts its table. A second press turns the order around, and a third one ends it. */
export function sortHead(table, head, redraw, props = {}, first = false) {
  const now = chosen.get(table)?.head === head ? chosen.get(table) : null;
  const press = () => (now && now.down !== first ? choose(table, "", redraw) : choose(table, head, redraw, now ? !now.down : first));
  return h("th", { scope: "col", key: "head " + head, "aria-sort": now ? (now.down ? "descending" : "ascending") : null, ...props },
    // A phone shows no heads: what cannot be seen must not get the focus.
    phone.matches ? head : h("button", { type: "button", class: "sort", onclick: press }, head, h("span", { "aria-hidden": "true" }, now ? (now.down ? " ↓" : " ↑") : "")));
}

/** Return the same choice as a list, for a phone. */
export function sortList(table, heads, redraw) {
  const now = chosen.get(table);
  return h("label", { class: "sort-list" }, "Sort by", h("select", { value: now?.head ? `${now.head} ${now.down ? "down" : "up"}` : "", onchange: (event) => {
    const [, head, way] = event.target.value.match(/^(.*) (up|down)$/) || [null, "", ""];
    choose(table, head, redraw, way === "down");
  } }, h("option", { value: "", key: "" }, "as listed"), heads.flatMap((head) => [["up", "↑"], ["down", "↓"]].map(([way, arrow]) => h("option", { key: head + way, value: `${head} ${way}` }, `${head} ${arrow}`)))));
}
