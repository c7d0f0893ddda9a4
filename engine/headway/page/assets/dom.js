// Elements as values, and the smallest changes that make the document show them. All content is text, never markup.

/** Whether the page has the width of a phone. What matters most then comes first. */
export const phone = matchMedia("(max-width: 800px)");

const SVG = "http://www.w3.org/2000/svg";

/** Return an element as a value. Props that begin with "on" are listeners; `key` tells siblings apart. */
export function h(tag, props, ...children) {
  return { tag, props: props || {}, children: children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false) };
}

/** Make the children of an element those of a value. What is focused, typed or opened there stays so. */
export function render(element, ...children) {
  patchChildren(element, children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false), element.namespaceURI === SVG);
}

function create(value, svg) {
  if (typeof value !== "object") return document.createTextNode(String(value));
  const inside = svg || value.tag === "svg";
  const element = inside ? document.createElementNS(SVG, value.tag) : document.createElement(value.tag);
  element.shown = { tag: value.tag, props: {}, listeners: {} };
  // The value of a list is one of its options, so those come first.
  patchChildren(element, value.children, inside);
  patchProps(element, value.props);
  return element;
}

function fits(node, value) {
  if (typeof value !== "object") return node.nodeType === Node.TEXT_NODE;
  return node.shown !== undefined && node.shown.tag === value.tag && node.shown.props.key === value.props.key;
}

function patchChildren(element, values, svg) {
  const keyed = new Map();
  const wanted = new Set(values.map((value) => value.props?.key));
  for (const node of [...element.childNodes]) {
    const key = node.shown?.props.key;
    if (key === undefined) continue;
    // One that is no longer wanted goes first: what is moved past it would lose its focus and its selection.
    if (wanted.has(key)) keyed.set(key, node);
    else node.remove();
  }
  let at = element.firstChild;
  for (const value of values) {
    const key = typeof value === "object" ? value.props.key : undefined;
    let node = key === undefined ? at : keyed.get(key);
    if (node && fits(node, value)) {
      if (node === at) at = at.nextSibling;
      else element.insertBefore(node, at);
      if (typeof value !== "object") {
        if (node.data !== String(value)) node.data = String(value);
      } else {
        patchChildren(node, value.children, svg || value.tag === "svg");
        patchProps(node, value.props);
      }
    } else {
      node = create(value, svg);
      element.insertBefore(node, at);
      // One that was replaced goes; one with a key may still be wanted further on.
      if (at && key === undefined && !(at.shown && at.shown.props.key !== undefined)) {
        const gone = at;
        at = at.nextSibling;
        gone.remove();
      }
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function patchProps(element, props) {
  const before = element.shown.props;
  for (const name of Object.keys(before)) if (!(name in props)) setProp(element, name, null);
  for (const [name, value] of Object.entries(props)) if (value !== before[name]) setProp(element, name, value);
  element.shown.props = props;
}

function setProp(element, name, value) {
  if (name === "key") return;
  if (name.startsWith("on")) {
    const event = name.slice(2);
    if (!(event in element.shown.listeners)) element.addEventListener(event, (given) => element.shown.listeners[event]?.(given));
    element.shown.listeners[event] = value;
  } else if (name === "value" && element.tagName !== "PROGRESS") {
    if (document.activeElement !== element && element.value !== value) element.value = value ?? "";
  } else if (["checked", "disabled", "selected"].includes(name)) {
    element[name] = Boolean(value);
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else if (name === "href" && !/^(#|\/(?!\/))/.test(value)) {
    // Links lead only to this page.
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? "" : value);
  }
}

/** Say something to the reader, and to a screen reader. */
export function say(text, bad = false) {
  const said = document.getElementById("said");
  said.textContent = text;
  said.className = bad ? "bad shown" : "shown";
  clearTimeout(said.timer);
  said.timer = setTimeout(unsay, bad ? 9000 : 4000);
}

/** Take back what was said. */
export function unsay() {
  const said = document.getElementById("said");
  said.className = "";
  said.textContent = "";
}
