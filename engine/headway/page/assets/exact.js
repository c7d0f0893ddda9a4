// JSON whose whole numbers may be longer than JavaScript can hold. Those are kept as marked texts.

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Return the value of a JSON text. */
export function parseExact(text) {
  // Any number of fewer digits is exact.
  return JSON.parse(text.replace(TOKEN, (each) => (/^-?\d{16,}$/.test(each) ? `"\\u0001${each}"` : each)));
}

/** Return a value of `parseExact` as JSON. */
export function printExact(value, indent = undefined) {
  return JSON.stringify(value, null, indent).replace(/"\\u0001(-?\d+)"/g, "$1");
}

/** Return a whole number of `parseExact` as a number, which is rounded if it is long. */
export function rounded(value) {
  return typeof value === "string" ? Number(value.slice(1)) : value;
}
