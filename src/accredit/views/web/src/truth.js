// How near does each method come to the true advantages? A table best first, and where the chosen one goes wrong.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { count } from "./format.js";
import { Figure } from "./figure.js";
import { StepTable } from "./steplist.js";

// Key of the rows, heading, where the best is, and what it means.
const MEASURES = [
  ["rank", "rank correlation", "high", "Spearman's correlation of credit with the true advantage A over the steps of a group, mean over groups; 1 is the truth's order"],
  ["sign", "sign", "high", "share of the steps with a clear A that credit pushes the right way, mean over groups; credit 0 pushes nowhere"],
  ["cosine", "gradient cosine", "high", "cosine of the policy gradient by credit with that by A, one logit a (state, action), mean over groups"],
  ["bias", "bias", "zero", "mean of credit − A after the best common scale, reward units, mean over groups; 0 is best"],
  ["nmse", "NMSE", "low", "squared error after the best scale, over that of no credit: 0 is the truth, 1 is no better than nothing"],
  ["tau", "tau in rollouts", "high", "Kendall's tau-b of credit with A within a rollout"],
];
const BEST = { high: (x) => -x, low: (x) => x, zero: Math.abs };

function fixed(x) {
  const text = Math.abs(x).toFixed(3);
  return x < 0 && Number(text) !== 0 ? `−${text}` : text;
}

const ends = (found) => (found[1] === null ? "" : `${fixed(found[1])} to ${fixed(found[2])}`);

export function nearest(model) {
  const [row] = model.truth.rows;
  const { label } = model.methods[row.m];
  if (!row.rank) return `The true advantages of each group are all equal: there is no order to compare ${label} with`;
  const told = `${fixed(row.rank[0])}${row.rank[1] === null ? "" : ` (${ends(row.rank)})`}`;
  return model.methods.length > 1 ? `${label} has the highest rank correlation with the truth: ${told}` : `${label} has rank correlation ${told} with the truth`;
}

function sorted(rows, { by, worst }) {
  const [, , best] = MEASURES.find(([name]) => name === by);
  const key = (row) => (row[by] ? BEST[best](row[by][0]) : Infinity);
  const known = rows.filter((row) => row[by]).sort((a, b) => (worst ? key(b) - key(a) : key(a) - key(b)));
  return [...known, ...rows.filter((row) => !row[by])];
}

function Head({ measure, order, setOrder }) {
  const [name, heading, best, doc] = measure;
  const here = order.by === name;
  const falls = (best === "high") !== order.worst;
  return html`<th scope="col" class="num" aria-sort=${here ? (falls ? "descending" : "ascending") : null}>
    <button type="button" class="plain" title=${`${doc}. Sort by it.`} onClick=${() => setOrder({ by: name, worst: here && !order.worst })}>${heading}<span aria-hidden="true">${here ? (falls ? " ▼" : " ▲") : ""}</span></button></th>`;
}

function Rows({ model, place, go, measures }) {
  const { truth } = model;
  const [order, setOrder] = useState({ by: "rank", worst: false });
  return html`<table class="steps near">
    <caption>${count(model.methods.length, "method")} against the truth of ${count(truth.steps, "step")}, best first; a heading sorts. Below each number its 95 % interval${truth.groups > 1 ? `, by ${truth.resamples.toLocaleString("en-US")} resamples of ${count(truth.groups, "group")}` : " (none: one group)"}.</caption>
    <thead><tr><th scope="col">Method</th>${measures.map((measure) => html`<${Head} measure=${measure} order=${order} setOrder=${setOrder} />`)}</tr></thead>
    <tbody>${sorted(truth.rows, order).map((row) => html`<tr key=${row.m} class=${row.m === place.m ? "chosen" : ""}>
      <th scope="row"><button type="button" class="plain" aria-pressed=${row.m === place.m} onClick=${() => go({ m: row.m, vs: row.m === place.vs ? place.m : place.vs })}>${model.methods[row.m].label}</button></th>
      ${measures.map(([name]) => html`<td class="num">${row[name] ? html`${fixed(row[name][0])}<small>${ends(row[name])}</small>` : "none"}</td>`)}</tr>`)}</tbody>
  </table>`;
}

export function Truth({ model, place, go }) {
  const { truth } = model;
  const measures = MEASURES.filter(([name]) => truth.rows.some((row) => row[name]));
  const table = () => ({
    columns: ["method", ...measures.flatMap(([, heading]) => [heading, `${heading}, low`, `${heading}, high`])],
    rows: truth.rows.map((row) => [model.methods[row.m].label, ...measures.flatMap(([name]) => row[name] ?? [null, null, null])]),
  });
  const { label } = model.methods[place.m];
  const worst = truth.worst[place.m];
  const note = `${count(truth.steps, "step")} of ${count(truth.rollouts, "rollout")} in ${count(truth.groups, "group")} judged; the sign is looked at on ${count(truth.clear, "step")} with |A| > ${truth.above}. ${truth.lines.map((line) => line.replace(/\.?$/, ".")).join(" ")}`;
  return html`<${Figure} name="truth" title=${nearest(model)} note=${note} table=${table}>
    <${Rows} model=${model} place=${place} go=${go} measures=${measures} />
    <dl class="meanings">${measures.map(([, heading, , doc]) => html`<div><dt>${heading}</dt><dd>${doc}</dd></div>`)}</dl>
    ${measures.every(([name]) => name !== "cosine") && html`<p class="note">No gradient cosine: the steps do not say what they could do and how likely (metadata.commands, metadata.choice_logprobs).</p>`}
    ${worst.length > 0 && html`<${StepTable} model=${model} place=${place} steps=${worst} methods=${[place.m]} caption=${`The ${worst.length} steps on which ${label} is furthest from the truth, each in units of its root mean square`} />`}
  <//>`;
}
