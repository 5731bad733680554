// The page. Labels, words and messages only ever go into textContent, so none of them can become markup.

import { addedTo, judge, judgment, showCorrections, watchCorrections } from "./corrections.js";
import { showFacts } from "./facts.js";
import { $, call, make, number } from "./server.js";
import { describeTable, prepareTable } from "./table.js";

const state = {
  models: [],
  limits: {},
  learn: false, // whether the server takes corrections
  never: new Map(), // model id -> labels left out
  only: new Map(), // model id -> the only labels allowed
  picked: null, // {model, label}
  round: 0, // number of the request; answers to earlier ones are dropped
};

function complain(error) {
  $("error").textContent = error ? error.message : "";
  $("error").hidden = !error;
}

// --- small things -------------------------------------------------------------------------------------------------

function later(work, wait) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, wait);
  };
}

const modelOf = (id) => state.models.find((model) => model.model_id === id);
const chosen = () => [$("model").value, ...($("other").value ? [$("other").value] : [])];
const showPanel = () => showCorrections(chosen().map(modelOf), state, askAgain);
const rules = (map, id) => map.get(id) ?? map.set(id, new Set()).get(id);

// --- asking for labels --------------------------------------------------------------------------------------------

// "17:0.5 204:1.2" for models of numbers.
function toFeatures(text) {
  const features = {};
  for (const pair of text.split(/[\s,]+/).filter(Boolean)) {
    const [id, value = "1"] = pair.split(":");
    if (!/^\d+$/.test(id) || !Number.isFinite(Number(value))) {
      throw new Error(`features must be id:value, but one is ${pair}`);
    }
    features[id] = Number(value);
  }
  return features;
}

function input(model) {
  const text = $("text").value;
  return model.input === "text" ? { text } : { features: toFeatures(text) };
}

async function suggest() {
  const round = ++state.round;
  const ids = chosen();
  if (!$("text").value.trim()) {
    complain(null);
    $("status").textContent = "";
    showColumns(ids.map((id) => ({ id, results: null })));
    hideWhy();
    return;
  }
  const started = performance.now();
  try {
    const columns = await Promise.all(ids.map(async (id) => {
      const model = modelOf(id);
      const most = $("top-k").value;
      const only = [...rules(state.only, id)];
      const answer = await call("v1/suggest", {
        model: id,
        ...input(model),
        top_k: Number(most) || (most === "auto" && model.calibrated ? "auto" : null),
        exclude: [...rules(state.never, id)],
        ...(only.length ? { include: only } : {}),
      });
      return { id, ...answer };
    }));
    if (round !== state.round) return;
    complain(null);
    const { words, unknown_words: unknown } = columns[0];
    const known = unknown ? `${unknown} of ${words} words are unknown to the model · ` : "";
    $("status").textContent = `${known}${Math.max(1, Math.round(performance.now() - started))} ms`;
    showColumns(columns);
    refreshWhy(columns);
  } catch (error) {
    if (round === state.round) complain(error);
  }
}

// The model has changed.
function askAgain() {
  findLabels();
  return suggest();
}

// --- labels -------------------------------------------------------------------------------------------------------

let shown = [];

function showColumns(columns) {
  shown = columns;
  $("tag-view").classList.toggle("comparing", columns.length > 1);
  const least = Number($("threshold").value);
  $("columns").replaceChildren(...columns.map((column, i) => {
    const other = columns.length > 1 ? columns[1 - i].results : null;
    const kept = (column.results ?? []).filter((found) => found.score >= least);
    const list = kept.length
      ? make("ol", { className: "labels" }, ...kept.map((found) => labelRow(column.id, found, other)))
      : make("p", { className: "empty", textContent: column.results === null
        ? "Labels appear here as you write."
        : column.results.length ? "No label is that likely; move the slider to the left."
          : column.note ?? "No label fits." });
    const part = make("section", { className: "column" });
    part.setAttribute("aria-label", `Labels of ${column.id}`);
    part.dataset.model = column.id;
    if (columns.length > 1) part.append(make("h2", { textContent: column.id }));
    part.append(list);
    const added = addedRows(column.id);
    if (added.length) part.append(make("ul", { className: "labels" }, ...added));
    if (kept.length || added.length) part.append(belowLabels(column.id, kept));
    return part;
  }));
  showRules();
}

// What one can do with the labels. Browsers give pages the clipboard only over HTTPS and on localhost.
function belowLabels(model, kept) {
  const hint = make("p", { className: "hint", textContent: "Click a label to see which words count for it. " });
  if (navigator.clipboard) {
    const copy = make("button", { type: "button", className: "copy", textContent: "Copy labels" });
    copy.addEventListener("click", async () => {
      const text = $("text").value;
      const right = kept.map((found) => found.label).filter((label) => judgment(model, text, label) !== "rejected");
      await navigator.clipboard.writeText([...right, ...addedTo(model, text)].join("\n"));
      copy.textContent = "Copied";
    });
    hint.append(copy);
  }
  return hint;
}

function labelRow(model, found, other) {
  const row = make("li");
  row.style.setProperty("--share", found.score);
  const picked = state.picked?.model === model && state.picked.label === found.label;
  row.classList.toggle("picked", picked);
  const pick = make("button", { className: "pick", type: "button" },
    make("span", { className: "name", textContent: found.label }));
  if (other) {
    const place = other.findIndex((theirs) => theirs.label_id === found.label_id || theirs.label === found.label);
    const same = place >= 0 && other[place].label === found.label;
    pick.append(make("span", { className: "shared", textContent: same ? `#${place + 1} there` : "only here" }));
  }
  pick.append(make("span", { className: "score", textContent: found.score.toFixed(2) }));
  pick.setAttribute("aria-pressed", picked);
  pick.title = `Which words count for it?${restsOn(found)}`;
  pick.addEventListener("click", () => pickLabel(model, found.label));
  const judges = modelOf(model).input === "text" ? [
    judgeButton(model, found.label, "accepted", "✓", "Right"), judgeButton(model, found.label, "rejected", "✗", "Wrong"),
  ] : [];
  const never = make("button", { className: "never", type: "button", textContent: "×", title: "Leave this label out" });
  never.setAttribute("aria-label", `Leave out ${found.label}`);
  never.addEventListener("click", () => leaveOut(found.label));
  row.append(pick, ...judges, never);
  return row;
}

// Of few predictions a probability is a rough one.
function restsOn({ support }) {
  if (support === undefined) return "";
  return ` Its probability rests on ${support.toLocaleString("en")} held-out prediction${support === 1 ? "" : "s"}.`;
}

function judgeButton(model, label, kind, sign, word) {
  const on = judgment(model, $("text").value, label) === kind;
  const button = make("button", { className: `judge ${kind}`, type: "button", textContent: sign, title: `${word}: a correction` });
  button.setAttribute("aria-label", `${word}: ${label}`);
  button.setAttribute("aria-pressed", on);
  button.addEventListener("click", () => judge(model, $("text").value, label, kind));
  return button;
}

// Labels that were added to the text by hand.
function addedRows(model) {
  return addedTo(model, $("text").value).map((label) => {
    const undo = make("button", { className: "judge", type: "button", textContent: "×", title: "Take back" });
    undo.setAttribute("aria-label", `Take back ${label}`);
    undo.addEventListener("click", () => judge(model, $("text").value, label, "added"));
    return make("li", { className: "added" },
      make("span", { className: "pick" }, make("span", { className: "name", textContent: label }),
        make("span", { className: "shared", textContent: "added" })), undo);
  });
}

// Leaves a label out wherever it is shown. Each model gets only labels it knows.
function leaveOut(label) {
  const at = [...document.querySelectorAll(".never")].indexOf(document.activeElement);
  for (const column of shown) {
    if (column.results?.some((found) => found.label === label)) rules(state.never, column.id).add(label);
  }
  suggest().then(() => {
    const buttons = document.querySelectorAll(".never");
    if (at >= 0) buttons[Math.min(at, buttons.length - 1)]?.focus();
  });
}

function showRules() {
  const chips = [];
  const listed = new Set();
  for (const id of chosen()) {
    for (const [map, kind, word] of [[state.never, "never-rule", "left out"], [state.only, "only-rule", "only"]]) {
      for (const label of rules(map, id)) {
        if (listed.has(kind + label)) continue;
        listed.add(kind + label);
        const chip = make("button", { type: "button", className: kind, textContent: label });
        chip.setAttribute("aria-label", `${label}, ${word}: undo`);
        chip.title = `${word}; click to undo`;
        chip.addEventListener("click", () => {
          for (const other of map.values()) other.delete(label);
          suggest();
        });
        chips.push(chip);
      }
    }
  }
  $("rules").replaceChildren(...chips);
}

// --- why ----------------------------------------------------------------------------------------------------------

function pickLabel(model, label) {
  const same = state.picked?.model === model && state.picked.label === label;
  state.picked = same ? null : { model, label };
  markPicked();
  if (same) hideWhy();
  else explain();
}

function markPicked() {
  for (const column of document.querySelectorAll(".column")) {
    for (const row of column.querySelectorAll(".labels li")) {
      const on = state.picked?.model === column.dataset.model &&
        state.picked.label === row.querySelector(".name").textContent;
      row.classList.toggle("picked", on);
      row.querySelector(".pick").setAttribute("aria-pressed", on);
    }
  }
}

function refreshWhy(columns) {
  if (!state.picked) return;
  const column = columns.find((each) => each.id === state.picked.model);
  if (column?.results?.some((found) => found.label === state.picked.label)) explain();
  else hideWhy();
}

function hideWhy() {
  state.picked = null;
  $("why").hidden = true;
  markPicked();
}

async function explain() {
  const { model, label } = state.picked;
  const text = $("text").value;
  const asked = state.picked;
  try {
    const why = await call("v1/explain", { model, label, ...input(modelOf(model)) });
    if (state.picked === asked && $("text").value === text) showWhy(why, text);
  } catch (error) {
    complain(error);
  }
}

function showWhy(why, text) {
  $("why-title").textContent = `Why ${why.label}?`;
  $("why-note").textContent = `${why.meaning}${restsOn(why)}${
    why.note ? ` ${why.note[0].toUpperCase()}${why.note.slice(1)}.` : ""}${
    why.unknown.length ? ` Unknown: ${why.unknown.slice(0, 8).join(", ")}.` : ""}`;
  $("why-text").replaceChildren(...(why.spans.length ? highlight(text, why.spans) : [text]));
  const largest = Math.max(...why.words.map((word) => Math.abs(word.contribution)), 1e-9);
  $("why-words").replaceChildren(...why.account.map((line) => {
    const bar = make("span", { className: "bar" });
    bar.style.setProperty("--share", Math.abs(line.value) / largest);
    const sign = line.value >= 0 ? "+" : "−";
    return make("li", { className: `${line.kind} ${line.value >= 0 ? "for" : "against"}` },
      make("span", { className: "word", textContent: line.text, title: line.text }),
      make("span", {}, ...(line.kind === "word" ? [bar] : [])),
      make("span", { className: "value", textContent: sign + Math.abs(line.value).toFixed(3) }));
  }));
  $("why").hidden = false;
}

const FAINT = 0.06; // share of the largest contribution below which words are not coloured

// The text in pieces, coloured by contribution. Places count code points; spans may overlap (words and pairs).
function highlight(text, spans) {
  const characters = Array.from(text);
  const strength = new Float64Array(characters.length + 1);
  for (const span of spans) {
    for (let i = span.start; i < span.end; i++) strength[i] += span.contribution;
  }
  const largest = strength.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
  const pieces = [];
  for (let start = 0, i = 1; i <= characters.length; i++) {
    if (i < characters.length && strength[i] === strength[start]) continue;
    const piece = characters.slice(start, i).join("");
    const value = strength[start];
    if (Math.abs(value) < FAINT * largest || !piece.trim()) {
      pieces.push(piece);
    } else {
      const mark = make("mark", { className: value > 0 ? "for" : "against", textContent: piece });
      mark.style.setProperty("--strength", 0.12 + (0.6 * Math.abs(value)) / largest);
      mark.title = `${value > 0 ? "for" : "against"}, ${value.toFixed(3)}`;
      pieces.push(mark);
    }
    start = i;
  }
  return pieces;
}

// --- finding labels -----------------------------------------------------------------------------------------------

// A button that adds a label to the text, where there is one.
function adding(id, label) {
  if (modelOf(id).input !== "text" || !$("text").value.trim()) return [];
  const button = make("button", { type: "button", textContent: "add" });
  button.setAttribute("aria-label", `add ${label}`);
  button.addEventListener("click", () => {
    if (judgment(id, $("text").value, label) !== "added") judge(id, $("text").value, label, "added");
  });
  return [button];
}

async function findLabels() {
  const query = $("find").value.trim();
  const id = $("model").value;
  if (!query) {
    $("hits").replaceChildren();
    return;
  }
  try {
    const found = await call(`v1/labels?${new URLSearchParams({ model: id, query, limit: 8 })}`);
    if (query !== $("find").value.trim()) return;
    const rows = found.results.map((hit) => {
      const set = (map, words) => {
        const button = make("button", { type: "button", textContent: words });
        button.setAttribute("aria-label", `${words} ${hit.label}`);
        button.addEventListener("click", () => {
          rules(map, id).add(hit.label);
          suggest();
        });
        return button;
      };
      return make("li", {}, ...adding(id, hit.label), set(state.only, "only"), set(state.never, "never"),
        make("span", { textContent: hit.label }),
        make("span", { className: "count", textContent: number.format(hit.count) }));
    });
    const known = found.results.some((hit) => hit.label === query);
    const fresh = known ? [] : adding(id, query);
    if (fresh.length) rows.push(make("li", {}, ...fresh, make("span", { textContent: query }),
      make("span", { className: "count", textContent: "new" })));
    $("hits").replaceChildren(...(rows.length ? rows : [make("li", { textContent: "no such label" })]));
  } catch (error) {
    complain(error);
  }
}

// --- the whole ----------------------------------------------------------------------------------------------------

function fill(select, options) {
  select.replaceChildren(...options.map(([value, text]) => make("option", { value, textContent: text })));
}

function chooseModel() {
  const model = modelOf($("model").value);
  const others = state.models.filter((other) => other !== model && other.input === model.input);
  const before = $("other").value;
  fill($("other"), [["", "none"], ...others.map((other) => [other.model_id, other.model_id])]);
  $("other").value = others.some((other) => other.model_id === before) ? before : "";
  $("other-choice").hidden = others.length === 0;
  const text = model.input === "text";
  $("text-label").textContent = text ? "Text" : "Features";
  $("text").placeholder = text
    ? `Write or paste a text, and ${model.model_id} ranks ${number.format(model.n_labels)} labels for it.`
    : `This model was trained on numbers. Write features as id:value, such as 17:0.5 204:1.2`;
  $("text").maxLength = state.limits.max_characters;
  $("threshold-name").textContent = model.calibrated ? "Minimum probability" : "Minimum score";
  hideWhy();
  $("find").value = "";
  $("hits").replaceChildren();
  describeTable(model);
  showPanel();
}

function showView() {
  const facts = location.hash === "#facts";
  const table = location.hash === "#table";
  $("facts-view").hidden = !facts;
  $("table-view").hidden = !table;
  document.body.classList.toggle("facts-open", facts || table);
  $("tag-view").hidden = facts || table;
  for (const [link, on] of [[$("to-tag"), !facts && !table], [$("to-table"), table], [$("to-facts"), facts]]) {
    if (on) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (facts) showFacts($("model").value).catch(complain);
}

async function start() {
  const { models, limits, learn } = await call("v1/models");
  Object.assign(state, { models, limits, learn });
  fill($("model"), models.map((model) => [model.model_id, model.model_id]));
  const typed = later(suggest, 200);
  $("text").value = sessionStorage.getItem("text") ?? ""; // this tab's, after a reload
  $("text").addEventListener("input", () => {
    sessionStorage.setItem("text", $("text").value);
    typed();
  });
  $("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) suggest();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !$("ask-token").open) hideWhy();
  });
  $("model").addEventListener("change", () => {
    chooseModel();
    suggest();
    showView();
  });
  $("other").addEventListener("change", () => {
    showPanel();
    suggest();
  });
  $("top-k").addEventListener("change", suggest);
  $("threshold").addEventListener("input", () => {
    $("threshold-value").value = Number($("threshold").value).toFixed(2);
    showColumns(shown);
  });
  $("find").addEventListener("input", later(findLabels, 150));
  prepareTable(() => modelOf($("model").value), () => state.limits);
  watchCorrections(() => {
    const focused = document.activeElement.getAttribute("aria-label"); // drawing takes the focus away
    showColumns(shown);
    [...document.querySelectorAll(".judge")].find((each) => each.getAttribute("aria-label") === focused)?.focus();
    showPanel();
  });
  window.addEventListener("hashchange", showView);
  chooseModel();
  showView();
  await suggest();
  document.body.dataset.ready = "true";
}

start().catch(complain);
