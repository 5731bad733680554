// What people say of suggestions, text by text. It stays in this tab until it is closed.

import { $, count, make, save } from "./server.js";

const KINDS = ["accepted", "rejected", "added"];
const said = read(); // "[model, text]" as JSON -> {accepted, rejected, added}: lists of names
let changed = () => {};

function read() {
  try {
    return new Map(JSON.parse(sessionStorage.getItem("corrections")));
  } catch {
    return new Map();
  }
}

function keep() {
  try {
    sessionStorage.setItem("corrections", JSON.stringify([...said]));
  } catch {
    // More than browsers keep for a tab, some megabytes: they are here until the page is left.
  }
  changed();
}

export function watchCorrections(onChange) {
  changed = onChange;
}

const keyOf = (model, text) => JSON.stringify([model, text]);

export function judgment(model, text, label) {
  const entry = said.get(keyOf(model, text));
  return KINDS.find((kind) => entry?.[kind].includes(label)) ?? null;
}

// Says of a label that it is right, wrong or missing; the same once more takes it back.
export function judge(model, text, label, kind) {
  const before = judgment(model, text, label);
  const key = keyOf(model, text);
  const entry = said.get(key) ?? { accepted: [], rejected: [], added: [] };
  for (const each of KINDS) entry[each] = entry[each].filter((name) => name !== label);
  if (before !== kind) entry[kind].push(label);
  if (KINDS.some((each) => entry[each].length)) said.set(key, entry);
  else said.delete(key);
  keep();
}

export function addedTo(model, text) {
  return said.get(keyOf(model, text))?.added ?? [];
}

function listed(model) {
  return [...said].map(([key, entry]) => [...JSON.parse(key), entry]).filter(([id]) => id === model).map(
    ([, text, entry]) => ({ text, ...Object.fromEntries(KINDS.filter((kind) => entry[kind].length).map((kind) => [kind, entry[kind]])) }));
}

function forget(model, rows) {
  for (const row of rows) said.delete(keyOf(model, row.text));
  keep();
}

// The panel: how many there are of each model, and what can be done with them.
export function showCorrections(models) {
  const parts = models.flatMap((model) => panel(model, models.length > 1));
  $("corrections").hidden = !parts.length;
  $("corrections").replaceChildren(...parts);
}

function panel(model, named) {
  const rows = listed(model.model_id);
  if (!rows.length) return [];
  const button = (text, work) => {
    const made = make("button", { type: "button", textContent: text });
    made.addEventListener("click", work);
    return made;
  };
  const download = button("Download", () => {
    save(`${model.model_id}-corrections.jsonl`, rows.map((row) => `${JSON.stringify(row)}\n`), "application/jsonl");
  });
  const discard = button("Discard", () => forget(model.model_id, rows));
  const hint = make("span", { className: "hint" }, " Improve the model by them with: ",
    make("code", { textContent: "umpteen learn MODEL FILE" }));
  const what = `${count(rows.length, "text")} corrected${named ? ` for ${model.model_id}` : ""}.`;
  return [make("p", {}, what, hint), make("div", { className: "actions" }, download, discard)];
}
