// The questions and the changes that this page sends, and what its session allows.

import { parseExact, printExact } from "./exact.js";

const nobody = { allowed: false, signedIn: false, caller: "", writes: false, csrf: "", message: "", lacks: [] };

/** Each session has another `csrf`, and so tells the sessions apart. */
export const session = { controlled: false, ...nobody };

/** Whether the server has a list of this name, or an editor for this type. */
export function has(name) {
  return !session.lacks.includes(name);
}

/** An answer that is an error. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function read(response) {
  if (response.status === 204) return null;
  const text = await response.text();
  let body = {};
  try { body = parseExact(text); } catch { body = { message: text.slice(0, 200) }; }
  if (!response.ok) throw new Refused(response.status, body.message || response.statusText || "error " + response.status);
  return body;
}

/** Ask for JSON. */
export async function ask(path, query = {}, signal = undefined) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return read(await fetch(path + (text ? "?" + text : ""), { signal, headers: { accept: "application/json" } }));
}

/** Return why a stream is refused, or null if it is not. A stream of events that fails does not tell. */
async function refusal(path) {
  const aborter = new AbortController();
  try {
    const response = await fetch(path, { signal: aborter.signal, headers: { accept: "text/event-stream" } });
    if (!response.ok) await read(response);
    return null;
  } catch (error) {
    return error instanceof Refused ? error : null;
  } finally {
    aborter.abort();
  }
}

/** Whether an error stays the same until the caller gets other rights. Asking again would only fill the server's log. */
export function denied(error) {
  return [401, 403].includes(error?.status);
}

/** Send a change. */
export async function change(method, path, body = undefined) {
  const headers = { "content-type": "application/json", "x-headway-csrf": session.csrf };
  return read(await fetch(path, { method, headers, body: body === undefined ? undefined : printExact(body) }));
}

/** Learn who is signed in, and what they may do. */
export async function learn() {
  Object.assign(session, nobody, await ask("/page/session"));
}

/** Learn who is signed in, and return why a stream of events that has `failed` is refused, or null if it is not. */
export async function whyLost(path, failed) {
  await learn();
  // A stream that ended with its session says nothing about the session that another tab has begun since.
  const told = failed?.status === 401 && session.allowed ? null : failed;
  return told || (session.allowed ? refusal(path) : null);
}

export async function signIn(token) {
  await change("POST", "/page/session", { token });
  await learn();
}

export async function signOut() {
  await change("DELETE", "/page/session");
  Object.assign(session, nobody);
}
