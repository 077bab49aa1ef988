// Numbers and cells as text, in the way of the report.
const MINUS = "\u2212";
const LONGEST = 28;

const digits = (x, count) => {
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size < 1e-4 || size >= 1e15) return x.toExponential(count - 1).replace(/e([+-])(\d)$/, "e$10$2");
  const decimals = Math.max(0, count - 1 - Math.floor(Math.log10(size)));
  return x.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
};

export const number = (x, count = 4) => {
  if (x === null || x === undefined) return "\u2013";
  if (typeof x === "string") return x;
  const text = Number.isInteger(x) ? x.toLocaleString("en-US") : digits(x, count);
  return text.replace("-", MINUS);
};

export const signed = (x) => (x === null || x === undefined ? "\u2013" : (x >= 0 ? "+" : MINUS) + number(Math.abs(x), 3));

export const percent = (p) => {
  if (p === null || p === undefined) return "\u2013";
  const x = 100 * p;
  if (x > 0 && x < 0.1) return `${x.toPrecision(2)} %`;
  return x < 1 || x > 99 ? `${x.toFixed(2)} %` : `${x.toFixed(1)} %`;
};

export const brief = (x) => {
  if (x === null || x === undefined) return "missing";
  if (typeof x !== "number") {
    const text = String(x);
    return text.length <= LONGEST ? text : `${text.slice(0, LONGEST - 1)}\u2026`;
  }
  return String(Number.isInteger(x) ? x : Number(x.toPrecision(6))).replace("-", MINUS);
};

export const count = (k, noun) => `${number(k)} ${noun}${k === 1 ? "" : "s"}`;
export const worth = (change) => (change < 0 ? "better" : change > 0 ? "worse" : "no change");
export const range = (values) => `${signed(Math.min(...values))} to ${signed(Math.max(...values))}`;
