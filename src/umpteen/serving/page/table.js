// A table in, the same table with labels out. The server reads it, piece by piece; the page only cuts it.

import { $, call, count, make, number, patiently, save } from "./server.js";

const FIRST = 1 << 20; // shows how the table is written
const PIECE = 1 << 16;
let running = null; // {stopped}

export function prepareTable(modelOf, limits) {
  $("table-file").addEventListener("change", () => {
    $("table-start").disabled = !$("table-file").files.length;
    showOutcome("");
  });
  $("table-start").addEventListener("click", () => label(modelOf(), limits()));
  $("table-stop").addEventListener("click", () => {
    if (running) running.stopped = true;
  });
}

// Called when another model is chosen.
export function describeTable(model) {
  $("table-fields").value = (model.fields ?? ["text"]).join(", ");
  const texts = model.input === "text";
  $("table-form").hidden = !texts;
  $("table-numbers").hidden = texts;
}

async function label(model, limits) {
  const file = $("table-file").files[0];
  const run = running = { stopped: false };
  const out = [];
  const query = options(model, file);
  const done = { rows: 0, labels: 0, without: 0 };
  let cursor = null;
  let at = 0; // bytes that are done, the header included
  let size = Math.min(FIRST, limits.max_body_bytes);
  const started = performance.now();
  begin();
  try {
    while (!run.stopped) {
      const head = cursor ? file.slice(0, cursor.header_bytes) : new Blob([]);
      size = Math.min(size, limits.max_body_bytes - head.size);
      const end = Math.min(file.size, at + size);
      const parameters = new URLSearchParams([...query, ...Object.entries(cursor ?? {}), ["last", end === file.size ? 1 : 0]]);
      const body = new Blob([head, file.slice(at, end)]);
      const found = await patiently(() => call(`v1/label-table?${parameters}`, body), run);
      if (!found) break;
      out.push(found.table);
      for (const key of Object.keys(done)) done[key] += found[key];
      if (!cursor && found.next) at = found.next.header_bytes;
      cursor = found.next ?? null;
      at += found.consumed;
      progress(at, file.size, done.rows, started);
      if (cursor && at >= file.size) break;
      if (found.consumed) {
        size = Math.max(PIECE, 2 * found.consumed); // a little more than the server takes at a time
      } else if (end - at >= limits.max_body_bytes - (cursor?.header_bytes ?? 0) - 1) {
        throw new Error(`${file.name}: a row is larger than this server takes; see --max-body-bytes`);
      } else {
        size *= 2;
      }
    }
    finish(file, out, done, run.stopped);
  } catch (error) {
    showOutcome(error.message, true);
  } finally {
    $("table-start").disabled = false;
    $("table-stop").hidden = true;
    $("table-progress").hidden = true;
  }
}

function options(model, file) {
  const most = $("table-top-k").value;
  return [
    ["model", model.model_id], ["name", file.name.slice(-200)], ["labels", $("table-layout").value],
    ["escape_formulas", 1], // it will be opened by a spreadsheet
    ...(most ? [["top_k", most]] : []),
    ...$("table-fields").value.split(",").map((name) => name.trim()).filter(Boolean).map((name) => ["text", name]),
  ];
}

function begin() {
  $("table-start").disabled = true;
  $("table-stop").hidden = false;
  $("table-progress").hidden = false;
  $("table-progress").value = 0;
  showOutcome("");
}

function progress(at, size, rows, started) {
  const share = size ? at / size : 1;
  $("table-progress").value = share;
  const left = (performance.now() - started) * (1 - share) / share / 60_000;
  const rest = left > 1 ? `, about ${count(Math.round(left), "minute")} left` : "";
  $("table-outcome").textContent = `${count(rows, "row")}, ${Math.floor(100 * share)} %${rest}`;
}

function finish(file, out, done, stopped) {
  if (stopped) {
    showOutcome(`Stopped after ${count(done.rows, "row")}.`);
    return;
  }
  const name = file.name.replace(/(\.[^.]*)?$/, (ending) => `-labelled${ending || ".csv"}`);
  const again = make("button", { type: "button", textContent: `Download ${name}` });
  again.addEventListener("click", () => save(name, out, "text/csv;charset=utf-8"));
  const without = done.without ? `; ${number.format(done.without)} got none` : "";
  showOutcome(`${count(done.rows, "row")} got ${count(done.labels, "label")}${without}. `);
  $("table-outcome").append(again);
}

function showOutcome(text, wrong = false) {
  $("table-outcome").textContent = text;
  $("table-outcome").classList.toggle("error", wrong);
}
