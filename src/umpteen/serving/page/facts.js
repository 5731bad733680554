// What a model is, and how good.

import { $, call, make, number } from "./server.js";

function showPairs(list, pairs) {
  list.replaceChildren(...pairs.flatMap(([key, value]) => [
    make("dt", { textContent: key }), make("dd", { textContent: String(value ?? "–") }),
  ]));
}

const plain = (values) => Object.entries(values).map(([key, value]) => [
  key, value !== null && typeof value === "object" ? JSON.stringify(value) : value,
]);

// Shows a model, unless another one is chosen before the answer is there.
export async function showFacts(id) {
  const facts = await call(`v1/models/${encodeURIComponent(id)}`);
  if (id !== $("model").value) return;
  $("facts-title").textContent = facts.model_id;
  showPairs($("facts"), [
    ["Method", `${facts.method} (${facts.family})`],
    ["Takes", facts.input === "text" ? "texts" : "rows of numbers"],
    ["Labels", number.format(facts.n_labels)],
    ["Labels never seen", number.format(facts.labels_without_rows)],
    ["Features", number.format(facts.n_features)],
    ["Trained on", `${number.format(facts.n_train_rows)} rows`],
    ["Size", `${number.format(Math.round(facts.bytes / 1e5) / 10)} MB`],
    ["Scores", facts.calibrated ? "calibrated probabilities" : "in [0, 1], not calibrated"],
    ["Changed", new Date(facts.modification_time).toLocaleString()],
    ["Trained by", `umpteen ${facts.umpteen_version}`],
  ]);
  showPairs($("parameters"), plain(facts.parameters));
  showPairs($("features"), plain(facts.features));
  $("features-section").hidden = facts.input !== "text";
  $("frequent").replaceChildren(...facts.most_frequent.map((hit) => make("li", {},
    `${hit.label} `, make("span", { textContent: number.format(hit.count) }))));
  showMetrics(facts.metrics);
  const svg = await call(`v1/models/${encodeURIComponent(id)}/label-frequencies.svg`);
  const drawing = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  if (id === $("model").value) $("frequencies").replaceChildren(document.importNode(drawing, true));
}

function showMetrics(metrics) {
  if (!metrics) {
    $("metrics").replaceChildren(make("p", { className: "hint" }, "Not measured yet. To keep it with the model: ",
      make("code", { textContent: "umpteen evaluate DIR TEST --keep" })));
    return;
  }
  const keys = Object.keys(metrics).filter((key) => key.includes("@"));
  const names = [...new Set(keys.map((key) => key.split("@")[0]))];
  const cuts = [...new Set(keys.map((key) => key.split("@")[1]))];
  const head = make("tr", {}, make("th", { textContent: "percent" }),
    ...cuts.map((cut) => make("th", { textContent: `@${cut}`, scope: "col" })));
  const body = names.map((name) => make("tr", {}, make("th", { textContent: name, scope: "row" }),
    ...cuts.map((cut) => {
      const value = metrics[`${name}@${cut}`];
      return make("td", { textContent: typeof value === "number" ? value.toFixed(1) : "" });
    })));
  $("metrics").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)),
    make("p", { className: "hint", textContent: `On ${number.format(metrics.n_rows ?? 0)} unseen rows.` }));
}
