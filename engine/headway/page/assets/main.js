// The page: its header, its views by the part of the address after #, its theme, and signing in.

import { h, render, say, unsay } from "./dom.js";
import { has, learn, session, signIn, signOut } from "./api.js";
import { follow, forget, leave, live } from "./live.js";
import { fit, overview } from "./overview.js";
import { Controllers, controllerView } from "./controllers.js";
import { Events } from "./events.js";
import { Quotas } from "./quotas.js";
import { Resources } from "./resources.js";
import { Resource } from "./resource.js";
import { Leases } from "./leases.js";

const main = document.getElementById("main");
const LISTS = { controllers: Controllers, events: Events, leases: Leases, quotas: Quotas };
const THEMES = ["auto", "light", "dark"];
let view = null; // the open view, if it has a state of its own
let known = false; // whether the session is known
let asking = false; // whether a visitor whom the anonymous policy lets in wants to sign in
let problem = ""; // why signing in has failed
let theme = "auto";
let opened = ""; // the session that the view was opened for
try { theme = localStorage.getItem("headway-theme") || "auto"; } catch { /* the browser keeps nothing */ }

function applyTheme(next) {
  theme = THEMES.includes(next) ? next : "auto";
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", theme);
  try { localStorage.setItem("headway-theme", theme); } catch { /* likewise */ }
}

function route() {
  return location.hash.replace(/^#\/?/, "").split("/").map((each) => { try { return decodeURIComponent(each); } catch { return each; } });
}

function header() {
  const [place] = route();
  const link = (href, text, here) => h("a", { href, "aria-current": here ? "page" : null }, text);
  render(document.getElementById("header"),
    h("a", { class: "brand", href: "#/" }, "Headway"),
    h("nav", { "aria-label": "Main" }, link("#/", "Overview", place === ""), link("#/controllers", "Controllers", ["controllers", "controller"].includes(place)), link("#/resources", "Resources", ["resources", "resource"].includes(place)),
      has("events") && link("#/events", "Events", place === "events"), has("quotas") && link("#/quotas", "Quotas", place === "quotas"), link("#/leases", "Leases", place === "leases")),
    h("span", { class: "connection " + (live.connected ? "good" : "bad"), role: "status" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", { class: "word" }, live.connected ? "live" : live.denied ? "not allowed" : "not connected")),
    h("button", { type: "button", class: "theme", "aria-label": `Theme: ${theme}. Change it`, onclick: () => { applyTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]); header(); } }, { auto: "◐", light: "☀", dark: "☾" }[theme]),
    session.signedIn && h("button", { type: "button", onclick: leaveSession }, "Sign out"),
    session.controlled && session.allowed && !session.signedIn && !asking && h("button", { type: "button", onclick: askForToken }, "Sign in"));
}

async function leaveSession() {
  try { await signOut(); } catch (error) { say(error.message, true); return; }
  leave();
  return start();
}

function askForToken() {
  view?.close();
  view = null;
  leave();
  asking = true;
  problem = "";
  draw();
  document.getElementById("token").focus();
}

function draw() {
  // A session that has ended takes its view with it, and all that was received for it.
  if (session.csrf !== opened) return open();
  header();
  if (known && (asking || !session.allowed)) return signInForm();
  const [place, ...rest] = route();
  if (view) return render(main, view.content());
  if (place === "controller" && !live.denied) return render(main, controllerView(rest[0] || ""));
  if (live.denied) return render(main, h("p", { class: "problem", role: "alert" }, live.denied), h("p", { class: "actions" }, h("button", { type: "button", onclick: () => { forget(); follow(draw); draw(); } }, "Try again")));
  if (!live.graph) return render(main, h("p", { class: "empty" }, "Connecting…"));
  render(main, overview());
  return fit(main);
}

function open() {
  view?.close();
  view = null;
  if (session.csrf !== opened) {
    opened = session.csrf;
    forget();
    document.getElementById("dialog").close();
    document.getElementById("dialog").replaceChildren();
    unsay();
  }
  const [place, ...rest] = route();
  main.replaceChildren();
  if (session.allowed) {
    if (place === "resources") view = new Resources(main, rest[0] || "", draw);
    if (LISTS[place]) view = new LISTS[place](draw);
    if (place === "resource") view = new Resource({ type: rest[0] || "", partition: rest[1] || "", namespace: rest[2] || "", name: rest[3] || "" }, draw);
  }
  document.title = [...rest.slice(-1), LISTS[place] && place[0].toUpperCase() + place.slice(1), "Headway"].filter(Boolean).join(" – ");
  draw();
  // On a phone, the links scroll.
  document.querySelector("header [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function signInForm() {
  const submit = async (event) => {
    event.preventDefault();
    const field = event.target.elements.token;
    try {
      await signIn(field.value.trim());
      field.value = "";
      problem = session.message;
      asking = false;
      start();
    } catch (error) {
      problem = error.message;
      draw();
    }
  };
  render(main, h("form", { class: "sign-in", onsubmit: submit },
    h("h1", null, "Sign in"),
    h("p", null, "This server controls access. Your token is exchanged for a cookie that no script can read, and that ends after twelve hours."),
    h("label", null, "Token", h("input", { id: "token", name: "token", type: "password", required: true, autocomplete: "off", spellcheck: "false" })),
    (problem || (session.signedIn && session.message)) && h("p", { class: "problem", role: "alert" }, problem || session.message),
    h("p", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Sign in"))));
}

async function start() {
  try {
    await learn();
    known = true;
  } catch {
    setTimeout(start, 2000);
  }
  if (session.allowed) follow(draw);
  open();
}

window.addEventListener("hashchange", () => { if (asking) { asking = false; follow(draw); } open(); main.focus({ preventScroll: true }); scrollTo(0, 0); });
window.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (route()[0] !== "resources" && !LISTS[route()[0]]) location.hash = "#/resources";
  setTimeout(() => document.getElementById("search")?.focus(), 0);
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
applyTheme(theme);
start();
