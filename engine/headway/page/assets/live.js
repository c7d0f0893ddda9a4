// The state of the controllers, as the server sends it.

import { denied, session, whyLost } from "./api.js";

const POINTS = 180;

const nothing = () => ({
  connected: false, denied: "", asked: "", at: 0, stale: null, graph: null, controllers: [], types: [], failing: [], elsewhere: [], elsewhereMore: 0, absent: [], stuck: { items: [], more: 0, unreachable: [] }, refused: [],
  history: new Map(), // by controller: the numbers of the last 15 minutes
  // `denied` is why the server sends nothing, and `asked` a name that was searched for before a type was chosen.
});

export const live = nothing();

let source = null;
let listener = () => {};
let again = null;
let turn = 0; // counts the connections, so that what belongs to an earlier one ends

/** Call a function after every change, also of the session, and begin to receive. */
export function follow(changed) {
  listener = changed;
  connect();
}

/** Drop all that was received. The caller of another session may not see it. */
export function forget() {
  Object.assign(live, nothing());
}

/** Stop to receive, until `follow`. */
export function leave() {
  clearTimeout(again);
  turn += 1;
  source?.close();
  source = null;
  live.connected = false;
}

function connect() {
  leave();
  const mine = source = new EventSource("/page/live");
  mine.addEventListener("graph", (event) => {
    // A new beginning: the server sends all points again.
    Object.assign(live, { graph: JSON.parse(event.data), connected: true, denied: "" });
    live.history.clear();
  });
  mine.addEventListener("picture", (event) => { live.graph = JSON.parse(event.data); });
  mine.addEventListener("points", (event) => JSON.parse(event.data).forEach(addPoint));
  mine.addEventListener("state", (event) => {
    Object.assign(live, JSON.parse(event.data), { connected: true });
    listener();
  });
  mine.addEventListener("failed", (event) => lost(mine, JSON.parse(event.data)));
  mine.onerror = () => lost(mine, null);
}

function addPoint(point) {
  for (const [name, numbers] of Object.entries(point.of)) {
    if (!live.history.has(name)) live.history.set(name, []);
    const points = live.history.get(name);
    points.push({ at: point.at, rate: numbers[0], failures: numbers[1], queued: numbers[2], lag: numbers[3] });
    if (points.length > POINTS) points.shift();
  }
}

async function lost(of, failed) {
  if (of !== source) return;
  leave();
  const mine = turn;
  // It may have ended with the session; otherwise the server is stopping, or cannot be reached.
  let error = null, reached = true;
  try { error = await whyLost("/page/live", failed); } catch { reached = false; }
  if (mine !== turn) return;
  if (session.allowed && denied(error)) Object.assign(live, nothing(), { denied: error.message });
  listener();
  if (!live.denied && (session.allowed || !reached)) again = setTimeout(connect, 1500);
}
