// The page: facts at the top, and the panels.
import { ask } from "./api.js";
import { showBasket } from "./basket.js";
import { showBehind } from "./behind.js";
import { showChosen } from "./chosen.js";
import { h, problem, replace } from "./dom.js";
import { count, number, percent } from "./format.js";
import { showGroups } from "./groups.js";
import { showMap } from "./map.js";
import { showReview } from "./review.js";
import { showRows } from "./rows.js";
import { state, update, when } from "./state.js";
import { showWhatIf } from "./whatif.js";

const $ = (selector) => document.querySelector(selector);
const TABS = {
  behind: ["Training rows", showBehind],
  groups: ["Groups", showGroups],
  review: ["Label review", showReview],
  map: ["Map", showMap],
  whatif: ["What if", showWhatIf],
};

function theme() {
  const root = document.documentElement;
  const themes = ["auto", "light", "dark"];
  const show = (name) => {
    if (name === "auto") delete root.dataset.theme; else root.dataset.theme = name;
    $("#theme").textContent = `Theme: ${name}`;
  };
  let stored = null;
  try { stored = localStorage.getItem("leaftrace-theme"); } catch { /* a private window */ }
  show(themes.includes(stored) ? stored : "auto");
  $("#theme").addEventListener("click", () => {
    const name = themes[(themes.indexOf(root.dataset.theme ?? "auto") + 1) % 3];
    show(name);
    try { localStorage.setItem("leaftrace-theme", name); } catch { /* a private window */ }
  });
}

function tabs(facts) {
  const list = $("#panels .tabs");
  const names = facts.frozen ? ["behind"] : Object.keys(TABS);
  let close = () => {};
  const show = () => {
    const tab = names.includes(state.tab) ? state.tab : "behind";
    replace(list, names.map((name) => h("button", {
      type: "button", role: "tab", id: `tab-${name}`, "data-key": `tab-${name}`, "aria-controls": "panel",
      "aria-selected": String(name === tab), tabindex: name === tab ? "0" : "-1",
      click: () => update({ tab: name }),
      keydown: (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = names[(names.indexOf(name) + step + names.length) % names.length];
        update({ tab: next });
        $(`#tab-${next}`).focus();
      },
    }, TABS[name][0])));
    $("#panel").setAttribute("aria-labelledby", `tab-${tab}`);
    close();
    $("#panel").replaceChildren();
    const panel = h("div", { class: `panel-${tab}` });
    $("#panel").append(panel);
    close = TABS[tab][1](panel, facts) ?? (() => {});
  };
  when(["tab"], show);
  show();
}

async function start() {
  theme();
  const facts = await ask("facts");
  document.title = `explore ${facts.model}`;
  $("#title").textContent = facts.frozen ? "Recorded explorer" : `${facts.model}, ${count(facts.test_rows, "test row")}`;
  const quality = facts.classes ? `accuracy ${percent(facts.accuracy)}` : `mean absolute error ${number(facts.mean_error)}`;
  if (facts.frozen) {
    replace($("#facts"), `Refits are recorded, where they are possible, of single training rows and of the most harmful ones together. Other combinations have a first-order estimate. Relabelling, retraining, groups and the map need the explorer itself: ${facts.frozen.command}`);
  } else replace($("#facts"),
    `${count(facts.training_rows, "training row")}, ${facts.steps} steps, ${facts.loss.mean} ${number(facts.mean_loss)}, ${quality}. `,
    h("span", { class: facts.fidelity.exact ? "" : "badge bad" }, `Replay: ${facts.fidelity.verdict}`));
  $("#theme").hidden = Boolean(facts.frozen);
  if (state.row === null || state.row >= facts.test_rows) state.row = facts.worst;
  showRows($("#rows .body-of"), facts);
  showChosen($("#chosen .body-of"), facts);
  showBasket($("#basket .body-of"), facts);
  tabs(facts);
}

start().catch(problem);
