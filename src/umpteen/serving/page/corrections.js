// What people say of suggestions, text by text. It stays in this tab until it is closed.

import { $, call, count, make, patiently, save } from "./server.js";

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

// --- teaching the server's model ----------------------------------------------------------------------------------

const lessons = new Map(); // model id -> what is to be said of the last one; {text, wrong, busy}
const NEWS = 2000; // milliseconds between looks for the new model
const LOOKS = 30;

// Sends corrections, some at a time, forgets what was learnt, and waits until the new model answers.
async function teach(id, most, onNews) {
  const say = (text, more = {}) => {
    lessons.set(id, { text, ...more });
    changed();
  };
  let done = 0;
  let version = null;
  try {
    for (let rows = listed(id); rows.length; rows = listed(id)) {
      const some = rows.slice(0, most);
      say(`Learning ${count(rows.length, "text")} …`, { busy: true });
      version = (await patiently(() => call("v1/learn", { model: id, corrections: some }))).version;
      done += some.length;
      forget(id, some);
    }
    say(`${count(done, "text")} learnt; the new model is being opened …`, { busy: true });
    const open = await waitFor(id, version);
    say(open ? `${count(done, "text")} learnt.` : `${count(done, "text")} learnt; the server has not opened the new model yet.`);
    onNews();
  } catch (error) {
    say(error.message, { wrong: true });
  }
}

async function waitFor(id, version) {
  for (let look = 0; look < LOOKS; look++) {
    const { models } = await call("v1/models");
    if (models.find((model) => model.model_id === id)?.version === version) return true;
    await new Promise((done) => setTimeout(done, NEWS));
  }
  return false;
}

// --- the panel ----------------------------------------------------------------------------------------------------

// How many there are of each model, and what can be done with them.
export function showCorrections(models, { learn, limits }, onNews) {
  const most = learn ? limits.max_documents : 0;
  const parts = models.flatMap((model) => panel(model, models.length > 1, most, onNews));
  $("corrections").hidden = !parts.length;
  $("corrections").replaceChildren(...parts);
}

function panel(model, named, most, onNews) {
  const rows = listed(model.model_id);
  const lesson = lessons.get(model.model_id);
  const news = lesson ? [make("p", { className: lesson.wrong ? "error" : "hint", textContent: lesson.text })] : [];
  news.forEach((line) => line.setAttribute("role", "status"));
  if (!rows.length) return news;
  const button = (text, work) => {
    const made = make("button", { type: "button", textContent: text });
    made.addEventListener("click", work);
    return made;
  };
  const download = button("Download", () => {
    save(`${model.model_id}-corrections.jsonl`, rows.map((row) => `${JSON.stringify(row)}\n`), "application/jsonl");
  });
  const discard = button("Discard", () => forget(model.model_id, rows));
  const taught = most && model.learns;
  const send = button("Improve the model", () => teach(model.model_id, most, onNews));
  for (const each of [send, discard]) each.disabled = Boolean(lesson?.busy);
  const hint = make("span", { className: "hint" }, ...(taught
    ? [" They change the model for everyone who uses this server."]
    : [" Improve the model by them with: ", make("code", { textContent: "umpteen learn MODEL FILE" })]));
  const what = `${count(rows.length, "text")} corrected${named ? ` for ${model.model_id}` : ""}.`;
  return [make("p", {}, what, hint), make("div", { className: "actions" }, ...(taught ? [send] : []), download, discard), ...news];
}
