// Answers that were recorded, for a page without a server: see record.py. What is not there is refused in a sentence.
const { facts: recordedFacts, tests, rows } = JSON.parse(document.getElementById("recorded").textContent);
const live = `open the explorer: ${recordedFacts.frozen.command}`;
const refused = (why) => ({ status: 422, answer: { error: why } });
const notRecorded = (what) => refused(`${what} not recorded; for that, ${live}`);

addEventListener("message", ({ data }) => { // the theme of the page around this one
  if (["light", "dark"].includes(data?.theme)) document.documentElement.dataset.theme = data.theme;
  else delete document.documentElement.dataset.theme;
});

/** Positions of the training rows that a basket removes; null if it does anything else. */
const removedRows = (items) => (items.every((item) => item.rows && item.do === "remove") ? [...new Set(items.flatMap((item) => item.rows))] : null);

const named = (item, listed) => {
  const names = item.rows.slice(0, 3).map((i) => listed.get(i)?.row ?? `at position ${i}`).join(", ");
  const more = item.rows.length - 3;
  return `row${item.rows.length > 1 ? "s" : ""} ${names}${more > 0 ? ` and ${more} more` : ""}`;
};

/** To first order the effect of a basket is the sum of those of its rows. */
function firstOrder({ row, first, mean }, gone) {
  if (first.missing) return first;
  const places = gone?.map((i) => row.training_rows.findIndex((line) => line.position === i));
  if (!places || places.includes(-1)) return { level: first.level, missing: `What this change does to this test row was not recorded; for that, ${live}` };
  const sum = (values) => values.reduce((a, b) => (a === null || b === null ? null : a + b), 0);
  return {
    ...first,
    row: { ...first.row, change: sum(places.map((k) => row.training_rows[k].change)) },
    all: { ...first.all, change: sum(places.map((k) => mean[k])) },
  };
}

function described(found, { basket, shown }) {
  const gone = removedRows(basket);
  const listed = new Map(found.row.training_rows.map((line) => [line.position, line]));
  return {
    changed: new Set(basket.flatMap((item) => item.rows ?? [])).size,
    items: basket.map((item) => ({ rows: item.rows?.length ?? 0, what: item.rows ? named(item, listed) : "rows", done: item.do === "remove" ? "removed" : item.do })),
    shown: (shown ?? []).map((i) => (gone?.includes(i) ? { do: "remove" } : null)),
    effect: basket.length ? firstOrder(found, gone) : null,
  };
}

function sorted({ sort, ascending }) {
  const key = { position: (line) => line.position, score: (line) => line.probability ?? line.prediction, loss: (line) => line.loss }[sort];
  const order = [...tests].sort((a, b) => key(a) - key(b));
  return ascending ? order : order.reverse();
}

const players = {
  facts: () => ({ status: 200, answer: recordedFacts }),
  tests: (asked) => ({ status: 200, answer: { total: recordedFacts.test_rows, passing: tests.length, offset: 0, rows: sorted(asked) } }),
  row: (_, found) => ({ status: 200, answer: found.row }),
  finding: (_, found) => ({ status: 200, answer: found.finding }),
  basket: (asked, found) => ({ status: 200, answer: described(found, asked) }),
  retrained: () => ({ status: 200, answer: { status: "none" } }),
  refit: (asked, found) => kept(asked, found, "refit"),
  controls: (asked, found) => kept(asked, found, "controls"),
};

function kept({ basket }, found, what) {
  const key = removedRows(basket)?.sort((a, b) => a - b).join(",");
  const answer = found.baskets[key];
  if (!answer) return notRecorded("The refit of this combination was");
  return answer.error ? refused(answer.error) : { status: 200, answer: answer[what] };
}

globalThis.leaftracePost = async (name, asked) => {
  const found = "position" in asked ? rows[asked.position] : {};
  if (!found) return notRecorded("This test row was");
  return players[name] ? players[name](asked, found) : notRecorded("This was");
};
