// The questions and the changes that this page sends, and what its session allows.

export const session = { allowed: false, controlled: false, signedIn: false, caller: "", writes: false, csrf: "", message: "" };

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
  try { body = JSON.parse(text); } catch { body = { message: text.slice(0, 200) }; }
  if (!response.ok) throw new Refused(response.status, body.message || response.statusText || "error " + response.status);
  return body;
}

/** Ask for JSON. */
export async function ask(path, query = {}, signal = undefined) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return read(await fetch(path + (text ? "?" + text : ""), { signal, headers: { accept: "application/json" } }));
}

/** Send a change. */
export async function change(method, path, body = undefined) {
  const headers = { "content-type": "application/json", "x-headway-csrf": session.csrf };
  return read(await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) }));
}

/** Learn who is signed in, and what they may do. */
export async function learn() {
  Object.assign(session, { allowed: false, caller: "", writes: false, csrf: "", message: "" }, await ask("/page/session"));
}

export async function signIn(token) {
  await change("POST", "/page/session", { token });
  await learn();
}

export async function signOut() {
  await change("DELETE", "/page/session");
}
