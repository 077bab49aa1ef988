// The state of the page, which its address holds: what is shown can be opened again, or sent with the data.
const DEFAULTS = {
  row: null, basket: [], tab: "behind", search: "", label: null, decision: null, which: "all", loss: null,
  predicted: null, residual: null, sort: "loss", ascending: false, offset: 0, top: 10, by: null, slices: null,
  refit: false, x: null, y: null, page: 0,
};
const listeners = [];
const past = []; // baskets before the present one
export const state = { ...DEFAULTS };

function read() {
  let given = {};
  try {
    given = JSON.parse(decodeURIComponent(location.hash.slice(1)) || "{}");
  } catch { /* an address that was cut or typed: begin anew */ }
  for (const key of Object.keys(DEFAULTS)) {
    const fits = Object.hasOwn(given, key) && (DEFAULTS[key] === null || typeof given[key] === typeof DEFAULTS[key]);
    state[key] = fits ? given[key] : DEFAULTS[key];
  }
  if (!Array.isArray(state.basket)) state.basket = [];
}

const differs = (key) => JSON.stringify(state[key]) !== JSON.stringify(DEFAULTS[key]);

function write(push) {
  const kept = Object.fromEntries(Object.keys(DEFAULTS).filter(differs).map((key) => [key, state[key]]));
  const hash = `#${encodeURIComponent(JSON.stringify(kept))}`;
  try {
    if (hash !== location.hash) history[push ? "pushState" : "replaceState"](null, "", hash);
  } catch { /* the frame of a notebook has no address of its own */ }
}

const tell = (keys) => listeners.forEach(([wanted, listener]) => {
  if (wanted.some((key) => keys.includes(key))) listener();
});

/** Call a function when one of these parts of the state changes. */
export const when = (keys, listener) => listeners.push([keys, listener]);

/** Change parts of the state. */
export function update(changes) {
  const keys = Object.keys(changes).filter((key) => JSON.stringify(state[key]) !== JSON.stringify(changes[key]));
  if (!keys.length) return;
  if (keys.includes("basket")) past.push(state.basket);
  Object.assign(state, changes);
  write(keys.includes("row") || keys.includes("basket"));
  tell(keys);
}

/** Take back the last change of the basket. */
export function undo() {
  const before = past.length ? past.pop() : state.basket.slice(0, -1);
  state.basket = before;
  write(true);
  tell(["basket"]);
}

/** Whether there is something to take back. */
export const canUndo = () => past.length > 0 || state.basket.length > 0;

/** The basket with another action for some rows; `action` is {do, to}, or null to leave them as they are. */
export function withRows(rows, action) {
  const gone = new Set(rows);
  const basket = state.basket
    .map((item) => (item.rows ? { ...item, rows: item.rows.filter((i) => !gone.has(i)) } : item))
    .filter((item) => !item.rows || item.rows.length);
  if (!action) return basket;
  const last = basket.at(-1);
  if (last?.rows && last.do === action.do && last.to === action.to) {
    basket[basket.length - 1] = { ...last, rows: [...last.rows, ...rows] };
    return basket;
  }
  return [...basket, { rows: [...rows], ...action }];
}

read();
addEventListener("popstate", () => {
  read();
  past.length = 0;
  tell(Object.keys(DEFAULTS));
});
