// Sorting, searching, filtering, expanding, keys, theme. The page is complete without this script, which makes no markup from data.
"use strict";
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const root = document.documentElement;
  root.classList.add("script");

  // ---- theme: that of the system, or a fixed choice, stored if the browser allows it for files ----
  const themes = ["auto", "light", "dark"];
  const storedTheme = () => { try { return localStorage.getItem("leaftrace-theme"); } catch { return null; } };
  const showTheme = (theme) => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    $("#theme").textContent = `Theme: ${theme}`;
    $("#explorer")?.contentWindow?.postMessage({ theme }, "*");
  };
  showTheme(themes.includes(storedTheme()) ? storedTheme() : "auto");
  $("#theme").addEventListener("click", () => {
    const theme = themes[(themes.indexOf(root.dataset.theme ?? "auto") + 1) % themes.length];
    showTheme(theme);
    try { localStorage.setItem("leaftrace-theme", theme); } catch { /* a private window */ }
  });

  // ---- sorting tables: a button in every heading ----
  const value = (cell) => {
    const text = cell.dataset.v ?? cell.textContent.trim().replace("\u2212", "-");
    const number = Number(text);
    return text === "" || cell.classList.contains("none") ? null : Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  const sort = (table, heading) => {
    const down = heading.getAttribute("aria-sort") !== "descending" && heading.dataset.first === "down";
    const direction = heading.getAttribute("aria-sort") === "ascending" || down ? "descending" : "ascending";
    const sign = direction === "ascending" ? 1 : -1;
    for (const other of $$("th", heading.parentElement)) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", direction);
    const column = heading.cellIndex;
    const rows = [...table.tBodies[0].rows].map((row) => [value(row.cells[column]), row]);
    rows.sort(([a], [b]) => a === null ? (b === null ? 0 : 1) : b === null ? -1 : sign * compare(a, b)); // missing last
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };
  for (const table of $$("table.sortable")) {
    for (const heading of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sort(table, heading));
    }
  }

  // ---- filtering the rows of a table: by its chips, its search field, its check box ----
  const has = (element, words) => words.every((word) => element.textContent.toLowerCase().includes(word));
  const wordsOf = (input) => input.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const group of $$(".chips")) {
    const table = $("table", group.nextElementSibling);
    group.addEventListener("click", ({ target }) => {
      const chip = target.closest("button");
      if (!chip) return;
      for (const other of $$("button", group)) other.setAttribute("aria-pressed", String(other === chip));
      for (const row of table.tBodies[0].rows) row.hidden = chip.dataset.effect !== "" && row.dataset.effect !== chip.dataset.effect;
    });
    group.addEventListener("keydown", (event) => step(event, $$("button", group), "ArrowRight", "ArrowLeft"));
  }
  const filterTable = (table) => {
    const input = $(`input[data-table="${table.id}"]`);
    const only = table.id === "noise-table" && $("#flagged").checked;
    for (const row of table.tBodies[0].rows) {
      row.hidden = !has(row, wordsOf(input)) || (only && !("flagged" in row.dataset));
    }
  };
  for (const input of $$("input[data-table]")) {
    input.addEventListener("input", () => filterTable(document.getElementById(input.dataset.table)));
  }
  $("#flagged")?.addEventListener("change", () => filterTable($("#noise-table")));

  // ---- test rows ----
  const list = $("#cases");
  const cases = $$(".case", list);
  const shown = () => [...list.children].filter((testRow) => !testRow.hidden);
  const isOfKind = ({ dataset }, which) => {
    if (which === "moved") return -dataset.gain >= 0.1 * Math.abs(dataset.loss);
    return which === "" || dataset.which === which;
  };
  const filter = () => {
    const words = wordsOf($("#find"));
    const which = $("#which")?.value ?? "";
    for (const testRow of cases) testRow.hidden = !(isOfKind(testRow, which) && has(testRow, words));
    $("#count").textContent = `${shown().length} of ${cases.length}`;
    $("#nothing").hidden = shown().length > 0;
  };
  $("#find").addEventListener("input", filter);
  $("#which")?.addEventListener("change", filter);
  $("#order").addEventListener("change", ({ target }) => {
    const name = target.value.replace("-", "");
    const sign = target.value.startsWith("-") ? -1 : 1;
    const key = ({ dataset }) => name === "row" ? dataset.row : Number(dataset[name] ?? Infinity);
    list.append(...[...cases].sort((a, b) => sign * compare(key(a), key(b))));
  });
  $("#open").addEventListener("click", () => { for (const testRow of shown()) testRow.open = true; });
  $("#close").addEventListener("click", () => { for (const testRow of cases) testRow.open = false; });
  filter();

  // ---- keys: arrows, Home and End move along a list; / searches; Escape clears ----
  function step(event, items, next, previous) {
    const at = items.indexOf(document.activeElement);
    const to = { [next]: at + 1, [previous]: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    items[Math.min(Math.max(to, 0), items.length - 1)].focus();
  }
  list.addEventListener("keydown", (event) => {
    if (event.target.matches("summary")) step(event, shown().map((testRow) => $("summary", testRow)), "ArrowDown", "ArrowUp");
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      $("#find").focus();
    }
    if (event.key === "Escape" && event.target.matches("input[type=search]")) {
      event.target.value = "";
      event.target.dispatchEvent(new Event("input"));
    }
  });

  // ---- printing: all test rows that are shown, expanded ----
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = shown().filter((testRow) => !testRow.open);
    for (const testRow of closed) testRow.open = true;
  });
  addEventListener("afterprint", () => { for (const testRow of closed) testRow.open = false; });
  $("#print").addEventListener("click", () => print());

  // ---- saving the data as a file ----
  $("#save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([$("#data").textContent], { type: "application/json" }));
    link.download = "leaftrace-report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  // ---- marking the section that is in view ----
  const links = new Map($$("nav a").map((link) => [link.hash.slice(1), link]));
  if ("IntersectionObserver" in window) {
    const watch = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(entry.target.id).setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-10% 0px -80% 0px" });
    for (const id of links.keys()) watch.observe(document.getElementById(id));
  }

  // ---- a recorded explorer, in a frame that has no origin and asks no host ----
  const frame = $("#frame");
  if (frame) {
    $("#explorer").addEventListener("load", ({ target }) => target.contentWindow.postMessage({ theme: root.dataset.theme ?? "auto" }, "*"));
    $("#explorer").srcdoc = JSON.parse(frame.textContent);
  }
})();
