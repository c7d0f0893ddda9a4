// Numbers, times and names as text.

/** Return a count with separators of thousands. */
export function count(number) {
  return number === null || number === undefined ? "–" : Math.round(number).toLocaleString("en-US");
}

/** Return a rate a second. */
export function rate(number) {
  if (number === null || number === undefined) return "–";
  return (number >= 100 ? Math.round(number).toLocaleString("en-US") : number.toFixed(1)) + "/s";
}

/** Return a duration, of at most two units. */
export function seconds(number) {
  if (number === null || number === undefined) return "–";
  if (number > 0 && number < 0.001) return "< 1 ms";
  if (number < 1) return Math.round(number * 1000) + " ms";
  if (number < 120) return Math.round(number) + " s";
  if (number < 7200) return Math.round(number / 60) + " min";
  return Math.round(number / 3600) + " h";
}

/** Return a time of day, with its date unless that is today. */
export function moment(at) {
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? time : date.toLocaleDateString("en-CA") + " " + time;
}

/** Return the link to a resource. */
export function resourceLink(ref) {
  return "#/resource/" + [ref.type, ref.partition, ref.namespace, ref.name].map(encodeURIComponent).join("/");
}

/** Return the link to a controller. */
export function controllerLink(name) {
  return "#/controller/" + encodeURIComponent(name);
}

/** Return the link to the resources of a type. */
export function typeLink(type) {
  return "#/resources/" + encodeURIComponent(type);
}

/** Return a type without its group and version. */
export function kind(type) {
  return type.slice(type.lastIndexOf(".") + 1);
}

/** Return a resource as text, without its default tenancy. */
export function named(ref) {
  const units = [ref.partition, ref.namespace].filter((each) => each && each !== "default");
  return [...units, ref.name].join("/");
}

/** Return how many resources have a change that no mapper could map. */
export function unmappedText(number) {
  return number === 1 ? "1 change not mapped" : `${count(number)} changes not mapped`;
}

/** Return a number of bytes. */
export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = number < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(number) / 10));
  const value = number / 1024 ** step;
  return `${step && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[step]}`;
}

/** Return how long ago something was, in one unit. */
export function age(at, now) {
  if (at === null || at === undefined) return "–";
  const passed = Math.max(0, now - at);
  return passed >= 172800 ? Math.round(passed / 86400) + " d" : seconds(Math.round(passed));
}
