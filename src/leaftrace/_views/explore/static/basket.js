// The basket: what was changed, and its effect on the chosen row and on all test rows.
import { ask, drop } from "./api.js";
import { h, problem, replace, save } from "./dom.js";
import { inWords, whenBehind } from "./chosen.js";
import { brief, count, number, percent, range, signed, worth } from "./format.js";
import { canUndo, state, undo, update, when } from "./state.js";

const listeners = [];
const now = { described: null, effect: null, controls: null, busy: "", why: "", retraining: null, label: null };

/** Call a function when the basket was read by the server. */
export function whenBasket(listener) {
  listeners.push(listener);
  return () => listeners.splice(listeners.indexOf(listener), 1);
}

/** What is done to the training rows that a panel shows. */
export const inBasket = {
  positions: [],
  watch(positions) {
    this.positions = positions;
    if (state.basket.some((item) => !item.rows)) load();
  },
  action(position) {
    const own = state.basket.findLast((item) => item.rows?.includes(position));
    if (own) return own;
    const other = now.described?.shown?.[this.positions.indexOf(position)];
    return other ? { ...other, from: "other" } : null;
  },
};

let root;
let facts;
let timer;

export function showBasket(element, given) {
  root = element;
  facts = given;
  whenBehind((answer) => { now.label = answer.label; });
  when(["basket", "row"], load);
  load();
}

const question = () => ({ basket: state.basket, position: state.row, shown: inBasket.positions });

async function load() {
  Object.assign(now, { effect: null, controls: null, retraining: null, busy: "", why: "" });
  clearTimeout(timer);
  for (const kind of ["basket", "refit", "controls", "retrained", "follow"]) drop(kind);
  if (!state.basket.length && now.described?.changed === 0) return; // empty as before, whatever the chosen row
  try {
    const described = await ask("basket", question());
    if (described === null) return;
    now.described = described;
    now.effect = described.effect;
    now.busy = described.changed ? "refitting" : "";
    show();
    listeners.forEach((listener) => listener());
    problem(null);
    if (!described.changed) return;
    const known = await ask("retrained", question());
    if (known === null) return;
    if (known.effect) return retrained(known);
    const effect = await ask("refit", question());
    if (effect === null) return;
    Object.assign(now, { effect, busy: "refitting random rows" });
    show();
    const controls = await ask("controls", question());
    if (controls === null) return;
    Object.assign(now, { controls, busy: "" });
    show();
    if (known.status === "running") follow();
  } catch (error) {
    Object.assign(now, { busy: "", why: error.message });
    show();
    problem(error);
  }
}

function retrained(answer) {
  Object.assign(now, { retraining: answer, busy: "" });
  if (answer.effect) {
    now.effect = answer.effect;
    now.controls = answer.effect.controls.row.length ? answer.effect.controls : null;
  }
  show();
  if (answer.status === "running") timer = setTimeout(follow, 300);
}

async function follow() {
  const asked = JSON.stringify(question());
  try {
    const answer = await ask("retrained", question(), "follow");
    if (answer && answer.status !== "none" && asked === JSON.stringify(question())) retrained(answer);
  } catch (error) { problem(error); }
}

async function begin() {
  try {
    const answer = await ask("retrain", question());
    if (answer) retrained(answer);
  } catch (error) { problem(error); }
}

async function cancel() {
  clearTimeout(timer);
  drop("follow");
  try {
    const answer = await ask("cancel", question());
    if (answer) retrained(answer);
  } catch (error) { problem(error); }
}

function show() {
  const { described } = now;
  summary();
  if (!described?.changed && !described?.items.length) {
    replace(root, h("p", { class: "quiet" }, "Nothing is changed yet. Tick training rows below to see what the model would do without them."), tools());
    return;
  }
  replace(root, items(described), now.effect && (now.effect.missing ? h("p", { class: "note" }, now.effect.missing) : effects()), now.why && h("p", { class: "note" }, now.why), conclusion(), tools());
}

/** One line at the bottom of the window, so that ticking a row far below shows what it does. */
function summary() {
  const place = document.querySelector("#summary");
  const { described, effect } = now;
  place.hidden = !described?.changed;
  if (place.hidden) return;
  const numbers = effect && !effect.missing && [
    h("span", {}, `this row's ${facts.loss.row} `, badge(effect.row.change)), h("span", {}, "all rows ", badge(effect.all.change, effect.all.interval)), h("b", {}, effect.level)];
  replace(place, h("a", { href: "#basket", click: (event) => { event.preventDefault(); document.querySelector("#basket").scrollIntoView(); } }, `Basket: ${count(described.changed, "training row")} changed`),
    numbers, now.why && h("span", {}, "no refit"), h("button", { type: "button", "data-key": "undo below", click: undo }, "Undo"));
}

/** A change with a word for it. A mean whose interval has both signs is neither better nor worse. */
function badge(x, interval) {
  if (x === null) return h("span", { class: "badge" }, "not known");
  const unclear = interval && interval[0] < 0 && interval[1] > 0;
  return h("span", { class: `badge ${unclear || x === 0 ? "" : x < 0 ? "good" : "bad"}` }, `${signed(x)} ${unclear ? "unclear" : worth(x)}`);
}

function items(described) {
  return h("ul", { class: "items" }, described.items.map((item, i) => h("li", {},
    h("span", {}, `${item.what}: ${item.done}`, item.rows > 1 ? ` (${count(item.rows, "row")})` : ""),
    h("button", { type: "button", "data-key": `take ${i}`, "aria-label": `take out ${item.what}`, click: () => update({ basket: state.basket.filter((_, j) => j !== i) }) }, "take out"))));
}

const LEVELS = {
  "first order": "first order: a quick estimate, replaced as soon as the refit is there",
  refitted: "refitted: exact for the trees as they are",
  retrained: "retrained: with trees of its own",
};

function effects() {
  const { effect, controls } = now;
  const { row, all } = effect;
  const first = effect.level === "first order";
  const cell = (name, ...text) => h("td", { "data-name": name }, ...text);
  const change = (x, interval) => cell("change", badge(x, interval), interval ? h("small", { class: "quiet" }, ` 95 % interval ${range(interval)}`) : "");
  const after = (text) => cell("after", first ? h("span", { class: "quiet" }, now.why ? "\u2013" : "\u2026") : text);
  const level = first && now.why ? "first order: a quick estimate; there is no refit, see below" : LEVELS[effect.level];
  const label = now.label;
  const key = facts.loss.key;
  const random = (values) => (values ? range(values) : first ? "" : now.busy ? "\u2026" : "");
  return [
    h("p", { class: "level", role: "status" }, h("b", { id: "level" }, effect.level), `${level.slice(effect.level.length)}${now.busy ? `; ${now.busy} \u2026` : ""}`),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Effect of the basket" }, h("table", { class: "effects" },
      h("caption", { class: "unseen" }, "Effect of the basket"),
      h("thead", {}, h("tr", {}, ["effect on", "before", "after", "change", "random rows instead"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {},
        h("tr", { id: "row-prediction" }, h("th", { scope: "row" }, "this row: predicted"), cell("before", inWords(row.before, label)), after(row.after && inWords(row.after, label)), cell("change", moved(row)), h("td", {})),
        h("tr", { id: "row-loss" }, h("th", { scope: "row" }, `this row: ${facts.loss.row}`), cell("before", number(row.before[key])), after(row.after && number(row.after[key])), change(row.change), cell("random rows instead", random(controls?.row))),
        h("tr", { id: "all-loss" }, h("th", { scope: "row" }, `all ${count(facts.test_rows, "row")}: ${facts.loss.mean}`), cell("before", number(all.before)), after(all.after !== undefined && number(all.after)),
          change(all.change, all.interval), cell("random rows instead", random(controls?.all))),
        all.accuracy && h("tr", {}, h("th", { scope: "row" }, "all rows: accuracy"), cell("before", percent(all.accuracy[0])), after(percent(all.accuracy[1])), cell("change", `${count(all.decisions_changed, "decision")} changed`), h("td", {})),
        all.mean_error && h("tr", {}, h("th", { scope: "row" }, "all rows: mean absolute error"), cell("before", number(all.mean_error[0])), after(number(all.mean_error[1])), cell("change", signed(all.mean_error[1] - all.mean_error[0])), h("td", {})),
        all.better !== undefined && h("tr", {}, h("th", { scope: "row" }, "rows that move"), h("td", { colspan: "4" }, `${count(all.better, "row")} better, ${number(all.worse)} worse`))))),
  ];
}

function moved({ before, after }) {
  if (!after) return "";
  if ("predicted" in after) {
    if (after.predicted === before.predicted) return "same decision";
    return h("span", { class: `badge ${after.correct ? "good" : "bad"}` }, after.correct ? "now right" : "another decision");
  }
  return signed(after.prediction - before.prediction);
}

function conclusion() {
  const { effect, controls } = now;
  if (!effect || effect.missing || effect.level === "first order" || !controls) return null;
  const size = Math.abs(effect.row.change);
  const random = Math.max(...controls.row.map(Math.abs));
  const row = size <= random ? "This row moves no more than when random rows are changed."
    : effect.row.change < 0 ? "This row gets better, by more than with random rows." : "This row gets worse, by more than with random rows.";
  const [low, high] = effect.all.interval ?? [0, 0];
  const clear = Math.abs(effect.all.change) > Math.max(...controls.all.map(Math.abs));
  const all = high < 0 && clear ? "All test rows get better on average."
    : low > 0 && clear ? "All test rows get worse on average: the change fits this row, not the data."
      : "Over all test rows there is no clear change.";
  const trees = effect.level === "retrained" ? (effect.trees_changed ? " Training again chose other splits." : " Training again chose the same splits.") : "";
  return h("p", { class: "note", id: "conclusion" }, `${row} ${all}${trees}`);
}

function tools() {
  const { retraining } = now;
  const running = retraining?.status === "running";
  const changed = Boolean(now.described?.changed);
  const progress = running && h("span", { class: "progress" }, h("progress", { max: retraining.total, value: String(retraining.done), "aria-label": "retraining" }),
    ` model ${Math.min(retraining.done + 1, retraining.total)} of ${retraining.total}, ${retraining.seconds.toFixed(0)} s`);
  const said = retraining && { cancelled: "Retraining was cancelled.", failed: `Retraining failed: ${retraining.error}` }[retraining.status];
  return [h("div", { class: "bar-tools" },
    h("button", { type: "button", id: "undo", "data-key": "undo", disabled: !canUndo(), click: undo }, "Undo"),
    h("button", { type: "button", id: "empty", "data-key": "empty", disabled: !state.basket.length, click: () => update({ basket: [] }) }, "Empty"),
    !facts.frozen && (running ? h("button", { type: "button", id: "cancel", "data-key": "retrain", click: cancel }, "Cancel") : h("button", { type: "button", id: "retrain", "data-key": "retrain", disabled: !changed, click: begin }, "Retrain (4 models)")),
    progress, said && h("span", { role: "status" }, said)),
  !facts.frozen && h("div", { class: "bar-tools" }, h("span", { class: "quiet" }, "Export"),
    file("script", "Python script", "repeat.py", "text/x-python", !changed), file("audit", "Audit file", "audit.json", "application/json", !changed), file("report", "Report", "report.html", "text/html", false))];
}

/** A button that saves an answer of the server as a file. */
export const file = (name, text, as, type, disabled) => h("button", {
  type: "button", "data-key": `save ${name}`, disabled,
  click: async () => {
    try {
      const answer = await ask(name, question());
      if (answer) save(answer.text, as, type);
    } catch (error) { problem(error); }
  },
}, text);
