// The changes that this page may send. Without `--http-writes` there are none.

import { h, render, say } from "./dom.js";
import { change, has, session } from "./api.js";
import { parseExact, printExact } from "./exact.js";
import { kind, named } from "./text.js";

/** Send a change, and say what it has done: `text`, which may be a function of the answer. */
async function send(text, ...what) {
  try {
    const answer = await change(...what);
    say(typeof text === "function" ? text(answer) : text);
    return true;
  } catch (error) {
    say(error.message, true);
    return false;
  }
}

/** Ask in a dialog. `submit` gets the form's data, and the dialog closes if it returns true. */
function dialog(title, fields, label, submit, dangerous = false) {
  const element = document.getElementById("dialog");
  const close = () => element.close();
  const submitted = async (event) => {
    event.preventDefault();
    const form = event.target;
    if (await submit(Object.fromEntries(new FormData(form)), form)) close();
  };
  element.replaceChildren();
  render(element, h("form", { onsubmit: submitted },
    h("h2", { id: "dialog-title" }, title), fields,
    h("p", { class: "problem", id: "dialog-problem", role: "alert" }),
    h("p", { class: "actions" }, h("button", { type: "submit", class: dangerous ? "dangerous" : "primary" }, label), h("button", { type: "button", onclick: close }, "Cancel"))));
  element.showModal();
}

export function pauseButtons(controller) {
  if (!session.writes) return null;
  if (controller.paused !== null) return h("button", { type: "button", onclick: () => send(`${controller.name} is resumed`, "POST", "/page/resume", { controller: controller.name }) }, "Resume");
  const fields = h("label", null, "Reason", h("input", { name: "reason", autocomplete: "off", maxlength: 200 }));
  return h("button", { type: "button", onclick: () => dialog(`Pause ${controller.name}`, [h("p", null, "No process starts a reconcile of it until it is resumed."), fields], "Pause", (data) => send(`${controller.name} is paused`, "POST", "/page/pause", { controller: controller.name, reason: data.reason })) }, "Pause");
}

export function retryButton(controller, ref, label = "Retry now") {
  if (!session.writes) return null;
  return h("button", { type: "button", key: "retry" + controller, "aria-label": `${label}: ${kind(ref.type)} ${named(ref)}, by ${controller}`, onclick: () => send((answer) => `${controller} reconciles ${kind(ref.type)} ${named(ref)} now${answer.running ? ", and again when that has ended" : ""}`, "POST", "/page/retry", { controller, ...ref }) }, label);
}

function path(ref, query = {}) {
  // A group may have dots.
  const [name, version, ...group] = ref.type.split(".").reverse();
  const units = { ...(ref.partition && { partition: ref.partition }), ...(ref.namespace && { namespace: ref.namespace }), ...query };
  return "/page/api/" + [group.reverse().join("."), version, name.toLowerCase(), ref.name].map(encodeURIComponent).join("/") + "?" + new URLSearchParams(units);
}

export function deleteButton(ref, resource) {
  if (!session.writes) return null;
  const text = `Delete ${kind(ref.type)} ${named(ref)}`;
  return h("button", { type: "button", class: "dangerous", onclick: () => dialog(text, h("p", null, "What it owns is deleted with it."), "Delete", () => send(`${kind(ref.type)} ${named(ref)} is deleted`, "DELETE", path(ref, { uid: resource.id.uid })), true) }, "Delete");
}

export function editButton(ref, resource) {
  if (!session.writes || !has(ref.type) || resource.undecodable) return null;
  const shown = { metadata: resource.metadata || {}, data: resource.data ?? {} };
  return h("button", { type: "button", onclick: () => editor(`Edit ${kind(ref.type)} ${named(ref)}`, shown, (edited) => {
    // Only what was changed is sent, so that what is not shown stays as it is.
    const merge = difference(shown, edited);
    return send(`${kind(ref.type)} ${named(ref)} is written`, "PATCH", path(ref, { version: resource.version }), merge ?? {});
  }) }, "Edit");
}

export function createButton(type) {
  if (!session.writes || !type || !has(type)) return null;
  const fields = ["name", "partition", "namespace"].map((name) => h("label", null, name[0].toUpperCase() + name.slice(1), h("input", { name, required: name === "name", autocomplete: "off", spellcheck: "false", placeholder: name === "name" ? "" : "default" })));
  return h("button", { type: "button", onclick: () => editor(`New ${kind(type)}`, { data: {} }, (edited, data) => send(`${kind(type)} ${data.name} is written`, "PUT", path({ type, ...data }), edited), fields) }, "New");
}

function editor(title, document_, submit, fields = []) {
  const area = h("label", null, "JSON", h("textarea", { name: "document", rows: 14, spellcheck: "false", autocomplete: "off" }));
  dialog(title, [fields, area], "Apply", (data, form) => {
    let edited;
    try { edited = parseExact(data.document); } catch (error) {
      form.querySelector("#dialog-problem").textContent = error.message;
      return false;
    }
    return submit(edited, data);
  });
  document.querySelector("#dialog textarea").value = printExact(document_, 2);
}

/** Return the merge patch (RFC 7396) from one value to another, or undefined if they are equal. */
export function difference(from, to) {
  const plain = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  if (!plain(from) || !plain(to)) return JSON.stringify(from) === JSON.stringify(to) ? undefined : to;
  const merge = {};
  for (const name of Object.keys(from)) if (!(name in to)) merge[name] = null;
  for (const [name, value] of Object.entries(to)) {
    const changed = name in from ? difference(from[name], value) : value;
    if (changed !== undefined) merge[name] = changed;
  }
  return Object.keys(merge).length ? merge : undefined;
}
