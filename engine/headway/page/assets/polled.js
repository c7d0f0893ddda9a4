// A list that is asked for again and again while it is shown.

import { h } from "./dom.js";
import { ask, denied } from "./api.js";

/** A view of the list at `path`. Classes that extend it draw it in `list`, and ask by `query`. */
export class Polled {
  constructor(redraw, path, again, query = {}) {
    Object.assign(this, { redraw, path, again, query, found: null, error: "" });
    this.look();
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.typing);
    this.aborter?.abort();
  }

  /** Ask for the list, or go on with `cursor`. */
  async look(cursor = "") {
    clearTimeout(this.timer);
    this.aborter?.abort();
    const mine = this.aborter = new AbortController();
    const began = performance.now();
    try {
      const found = await ask(this.path, cursor ? { ...this.query, cursor } : this.query, mine.signal);
      Object.assign(this, { found: this.joined(found, cursor), error: "" });
    } catch (error) {
      if (error.name === "AbortError") return;
      Object.assign(this, { found: null, error: error.message });
      if (denied(error)) return this.redraw();
    }
    this.redraw();
    // Many are not examined again and again, and what takes long is asked for seldom.
    if (!cursor && !this.found?.cursor) this.timer = setTimeout(() => this.look(), Math.max(this.again, 20 * (performance.now() - began)));
  }

  /** Return what is shown of an answer, which goes on after what has been found if it was asked for with a cursor. */
  joined(found) {
    return found;
  }

  set(name, value) {
    this.query = { ...this.query, [name]: value.trim() };
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.look(), 200);
  }

  /** Return the form for the query, with these fields. */
  form(name, ...fields) {
    return h("form", { class: `search ${name}`, role: "search", onsubmit: (event) => { event.preventDefault(); this.look(); } }, fields);
  }

  /** Return the list, or why there is none. */
  body() {
    if (this.error) return h("p", { class: "problem", role: "alert" }, this.error);
    return this.found ? this.list() : h("p", { class: "empty" }, "Asking…");
  }
}
