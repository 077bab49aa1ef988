// Test rows: search, filters, a histogram of losses, a confusion matrix or a residual plot, and pages of rows.
import { ask } from "./api.js";
import { choice, h, problem, replace, svg } from "./dom.js";
import { brief, count, number, percent } from "./format.js";
import { state, update, when } from "./state.js";

const PAGE = 15;
const FILTERS = ["search", "label", "decision", "which", "loss", "predicted", "residual"];
const [WIDE, HIGH] = [400, 60];

export function showRows(root, facts) {
  const search = searchBox();
  const tools = h("div", { class: "inline" }); // made anew with each answer, unlike the text under the cursor
  const pictures = h("div", { class: "pictures" });
  const list = h("div", {});
  if (!facts.frozen) root.append(h("div", { class: "bar-tools" }, h("label", {}, "Search ", search), tools), pictures);
  root.append(list);

  const load = async () => {
    showTools(tools, facts);
    if (document.activeElement !== search || state.search === "") search.value = state.search;
    try {
      const question = Object.fromEntries([...FILTERS, "sort", "ascending", "offset"].map((key) => [key, state[key]]));
      const answer = await ask("tests", { ...question, count: PAGE });
      if (answer === null) return;
      if (!facts.frozen) replace(pictures, histogram(answer.histogram, facts), answer.confusion && confusion(answer.confusion, facts.classes),
        answer.residuals && residuals(answer.residuals));
      replace(list, table(answer, facts), pages(answer, facts));
      problem(null);
    } catch (error) { problem(error); }
  };
  when([...FILTERS, "sort", "ascending", "offset"], load);
  when(["row"], () => mark(list));
  load();
}

const filter = (changes) => update({ ...changes, offset: 0 });

function searchBox() {
  let timer;
  const search = h("input", {
    type: "search", placeholder: "name, age>40, town=Rome", autocomplete: "off",
    input: () => { clearTimeout(timer); timer = setTimeout(() => filter({ search: search.value }), 200); },
  });
  return search;
}

function showTools(tools, facts) {
  const classes = (facts.classes ?? []).map((name, i) => [String(i), brief(name)]);
  const byClass = (name, text) => choice(text, [["", "any"], ...classes], state[name] === null ? "" : String(state[name]),
    (value) => filter({ [name]: value === "" ? null : Number(value) }), name);
  const limit = (place, name) => h("label", {}, `${name} `, h("input", {
    type: "number", step: "any", min: "0", class: "short", value: state.loss?.[place] ?? "", "data-key": `loss ${place}`,
    change: (event) => {
      const loss = [...(state.loss ?? [null, null])];
      loss[place] = event.target.value === "" ? null : Number(event.target.value);
      filter({ loss: loss[0] === null && loss[1] === null ? null : loss });
    },
  }));
  const active = FILTERS.some((key) => state[key] !== null && state[key] !== "" && state[key] !== "all");
  replace(tools,
    facts.classes && choice("Show", [["all", "all"], ["wrong", "wrong"], ["right", "right"]], state.which, (which) => filter({ which }), "which"),
    facts.classes && byClass("label", "label"), facts.classes && byClass("decision", "predicted"),
    limit(0, `${facts.loss.row} from`), limit(1, "to"),
    active && h("button", {
      type: "button", "data-key": "clear",
      click: () => filter({ search: "", label: null, decision: null, which: "all", loss: null, predicted: null, residual: null }),
    }, "Clear filters"));
}

function histogram({ low, high, all, some }, facts) {
  const most = Math.log1p(Math.max(...all));
  const step = WIDE / all.length;
  const bar = (k, i, kind) => k > 0 && svg("rect", {
    class: kind, x: i * step + 0.5, width: step - 1, y: HIGH - HIGH * (Math.log1p(k) / most), height: HIGH * (Math.log1p(k) / most),
  });
  const at = (event, box) => low + (high - low) * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  const picture = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${facts.loss.row} of the test rows, from ${number(low)} to ${number(high)}. Drag to choose a range, or type it above.` },
  all.map((k, i) => bar(k, i, "")), some.map((k, i) => bar(k, i, "in")));
  const [from, to] = [state.loss?.[0] ?? low, state.loss?.[1] ?? high];
  const brush = svg("rect", { class: "brush", y: 0, height: HIGH, x: WIDE * (from - low) / (high - low), width: Math.max(0, WIDE * (to - from) / (high - low)) });
  if (state.loss) picture.append(brush);
  let start = null;
  picture.addEventListener("pointerdown", (event) => {
    start = at(event, picture.getBoundingClientRect());
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const end = at(event, picture.getBoundingClientRect());
    const wide = Math.abs(end - start) > (high - low) / 100;
    filter({ loss: wide ? [Math.min(start, end), Math.max(start, end)].map((x) => Number(x.toPrecision(4))) : null });
    start = null;
  });
  return h("figure", { class: "histogram" }, picture,
    h("figcaption", {}, h("span", {}, number(low, 3)), h("span", {}, `${facts.loss.row} of a test row (heights are logarithmic)`), h("span", {}, number(high, 3))));
}

function confusion(counts, classes) {
  const most = Math.max(...counts.flatMap((line, i) => line.filter((_, j) => i !== j)), 1);
  const cell = (k, i, j) => {
    const chosen = state.label === i && state.decision === j;
    const heat = i === j || k === 0 ? "" : k > most / 2 ? "w2" : "w1";
    return h("td", { class: `n ${i === j ? "" : k ? "up" : "quiet"} ${heat}` }, h("button", {
      type: "button", class: "cell", "aria-pressed": String(chosen), "data-key": `cell ${i} ${j}`,
      "aria-label": `${count(k, "row")} of label ${brief(classes[i])}, predicted ${brief(classes[j])}`,
      click: () => filter(chosen ? { label: null, decision: null } : { label: i, decision: j }),
    }, number(k)));
  };
  return h("div", { class: "scroll confusion", tabindex: "0", role: "region", "aria-label": "Confusion matrix" }, h("table", { class: "heat" },
    h("caption", { class: "unseen" }, "Labels and predictions; choose a cell to see its rows"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "label \\ predicted"), classes.map((c) => h("th", { scope: "col", class: "n", title: c }, brief(c))))),
    h("tbody", {}, counts.map((line, i) => h("tr", {}, h("th", { scope: "row", title: classes[i] }, brief(classes[i])), line.map((k, j) => cell(k, i, j)))))));
}

function residuals({ predicted, residual, counts }) {
  const [wide, high] = [400, 160];
  const most = Math.log1p(Math.max(...counts.flat()));
  const [stepX, stepY] = [wide / counts.length, high / counts[0].length];
  const picture = svg("svg", { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", role: "img",
    "aria-label": "Predictions across, label minus prediction upwards. Drag a rectangle to see its rows." },
  counts.flatMap((line, i) => line.map((k, j) => k > 0 && svg("rect", {
    class: "density", x: i * stepX, y: high - (j + 1) * stepY, width: stepX, height: stepY, "fill-opacity": (0.15 + 0.85 * Math.log1p(k) / most).toFixed(2),
  }))), svg("line", { class: "zero", x1: 0, x2: wide, y1: high * (residual[1] / (residual[1] - residual[0])), y2: high * (residual[1] / (residual[1] - residual[0])) }));
  const at = (event) => {
    const box = picture.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height];
    return [predicted[0] + x * (predicted[1] - predicted[0]), residual[0] + y * (residual[1] - residual[0])];
  };
  let start = null;
  picture.addEventListener("pointerdown", (event) => { start = at(event); picture.setPointerCapture(event.pointerId); });
  picture.addEventListener("pointerup", (event) => {
    if (!start) return;
    const end = at(event);
    const pair = (k) => [Math.min(start[k], end[k]), Math.max(start[k], end[k])];
    const wideEnough = Math.abs(end[0] - start[0]) > (predicted[1] - predicted[0]) / 100;
    filter(wideEnough ? { predicted: pair(0), residual: pair(1) } : { predicted: null, residual: null });
    start = null;
  });
  return h("figure", { class: "histogram residuals" }, picture, h("figcaption", {}, h("span", {}, `predicted ${number(predicted[0], 3)}`),
    h("span", {}, `label minus prediction, ${number(residual[0], 3)} to ${number(residual[1], 3)} upwards`), h("span", {}, number(predicted[1], 3))));
}

function table(answer, facts) {
  const heading = (key, text, kind = "") => {
    const sorted = state.sort === key;
    return h("th", { scope: "col", class: kind, "aria-sort": sorted ? (state.ascending ? "ascending" : "descending") : null },
      h("button", { type: "button", "data-key": `sort ${key}`, click: () => update({ sort: key, ascending: sorted && !state.ascending, offset: 0 }) }, text));
  };
  const prediction = (row) => facts.classes
    ? [h("td", { class: row.correct ? "" : "up" }, brief(row.predicted)), h("td", { class: "n" }, percent(row.probability))]
    : [h("td", { class: "n" }, number(row.prediction))];
  const line = (row) => h("tr", { "data-row": row.position },
    h("th", { scope: "row" }, h("button", { type: "button", class: "link", "data-key": `row ${row.position}`, title: row.row, click: () => update({ row: row.position }) }, brief(row.row))),
    h("td", { class: facts.classes ? "" : "n" }, facts.classes ? brief(row.label) : number(row.label)), prediction(row), h("td", { class: "n" }, number(row[facts.loss.key], 3)));
  const body = h("tbody", {}, answer.rows.map(line));
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !event.target.closest("button")) update({ row: Number(row.dataset.row) });
  });
  const made = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "List of test rows" }, h("table", { class: "choose" },
    h("caption", { class: "unseen" }, "Test rows; choose one to see the training rows behind it"),
    h("thead", {}, h("tr", {}, heading("position", "row"), h("th", { scope: "col", class: facts.classes ? "" : "n" }, "label"),
      facts.classes ? [h("th", { scope: "col" }, "predicted"), heading("score", "P(label)", "n")] : heading("score", "predicted", "n"), heading("loss", facts.loss.row, "n"))),
    body));
  mark(made);
  return made;
}

const mark = (root) => root.querySelectorAll("tr[data-row]").forEach((row) => {
  const chosen = Number(row.dataset.row) === state.row;
  row.classList.toggle("chosen", chosen);
  row.querySelector("button")?.setAttribute("aria-current", String(chosen));
});

function pages(answer, facts) {
  if (facts.frozen) return h("p", { class: "quiet", id: "count" }, `${count(answer.passing, "row")} of ${number(answer.total)} recorded`);
  const last = Math.min(answer.offset + PAGE, answer.passing);
  const go = (offset) => update({ offset });
  return h("div", { class: "bar-tools" },
    h("button", { type: "button", "data-key": "back", disabled: answer.offset === 0, click: () => go(Math.max(0, answer.offset - PAGE)) }, "Back"),
    h("button", { type: "button", "data-key": "next", disabled: last >= answer.passing, click: () => go(answer.offset + PAGE) }, "Next"),
    h("span", { class: "quiet", id: "count", role: "status" }, answer.passing
      ? `${number(answer.offset + 1)} to ${number(last)} of ${count(answer.passing, "row")}${answer.passing < answer.total ? `, ${number(answer.total)} in all` : ""}; ${facts.loss.mean} ${number(answer.mean_loss, 3)}`
      : `none of ${count(answer.total, "row")} passes the filters`));
}
