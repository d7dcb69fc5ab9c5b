// Where credit sits: the first sentence, the decisive steps, the groups.
import { html } from "./html.js";
import { clip, count, number, percent, range } from "./format.js";
import { hashOf } from "./route.js";
import { Scale } from "./figure.js";
import { StepTable } from "./steplist.js";
import { nearest } from "./truth.js";

const MOST_GROUPS = 60;

function sentence(model, m) {
  const { half, zero } = model.head.concentration[m];
  const name = model.methods[m].label;
  if (model.methods[m].flat) return `${name} gives all steps of a rollout the same credit: it ranks rollouts, not decisions`;
  if (!half) return `${name} gives no credit to any of ${count(model.head.counts.steps, "step")}`;
  return zero > model.head.counts.steps / 2
    ? `Under ${name}, ${percent(half[0])} of steps hold half of all credit; ${percent(zero / model.head.counts.steps)} get none`
    : `Under ${name}, ${percent(half[0])} of steps hold half of all credit`;
}

function interval(model, m) {
  const { half } = model.head.concentration[m];
  const n = `${count(model.head.counts.steps, "step")} of ${count(model.head.counts.rollouts, "rollout")} in ${count(model.head.counts.groups, "group")}`;
  if (!half) return n;
  return `${model.methods[m].flat ? `${percent(half[0])} of steps hold half of all credit, ` : ""}${range(half[1], half[2], percent)} (bootstrap over groups); ${n}; credit by absolute size`;
}

function Strip({ model, g }) {
  const rows = model.rows(g);
  const top = Math.max(...model.head.rewardRange.map(Math.abs), 1e-12);
  return html`<span class="strip" aria-hidden="true">${rows.slice(0, 32).map((r) => {
    const x = model.reward(r);
    const height = x === null ? 0 : Math.max(1, Math.round((Math.abs(x) / top) * 16));
    return html`<i class=${x === null ? "none" : x < 0 ? "minus" : "plus"} style=${{ height: `${height}px` }}></i>`;
  })}</span>`;
}

function spreadOf(group) {
  if (!group.scored) return "unscored";
  if (group.scored < 2) return "single";
  return group.low === group.high ? "no spread" : "mixed";
}

function Groups({ model, place }) {
  const shown = model.groups.slice(0, MOST_GROUPS);
  return html`<table class="steps">
    <caption>${count(model.groups.length, "group")}${shown.length < model.groups.length ? ` (first ${shown.length}; all are in the list at the left)` : ""}. Bars: rewards, best first.</caption>
    <thead><tr><th scope="col">Group</th><th scope="col" class="num">Rollouts</th><th scope="col" class="num">Mean reward</th><th scope="col">Spread</th><th scope="col">Rewards</th></tr></thead>
    <tbody>${shown.map((group, g) => html`<tr key=${g}>
      <td class="wide"><a href=${(group.href ?? "") + hashOf(model, { ...place, g, r: null, s: null, view: "matrix" })}>${clip(group.name, 70)}</a></td>
      <td class="num">${group.n}</td><td class="num">${group.scored ? number(group.mean) : "none"}</td><td>${spreadOf(group)}</td>
      <td>${!group.href && html`<${Strip} model=${model} g=${g} />`}</td></tr>`)}</tbody>
  </table>`;
}

function Method({ method }) {
  const said = (k) => `${k}=${typeof method.params[k] === "object" ? JSON.stringify(method.params[k]) : method.params[k]}`;
  const all = Object.keys(method.params);
  return html`<div class="method"><b>${method.label}</b> <span>${method.title}</span><small>${method.changed.map(said).join(", ") || "default parameters"}</small>
    ${all.length > 0 && html`<details><summary>all parameters</summary><small>${all.map(said).join(", ")}</small></details>`}
    ${method.cites && html`<small>${method.cites}</small>`}</div>`;
}

export function Overview({ model, place }) {
  const { m } = place;
  const top = model.methods[m].top;
  return html`<section aria-labelledby="title-overview">
    <p class="report-title">${model.head.title}</p>
    <h1 id="title-overview" class="headline">${sentence(model, m)}</h1>
    <p class="note">${interval(model, m)}</p>
    ${model.truth && html`<p class="note">${nearest(model)}; ${count(model.truth.steps, "step")} judged. <a href=${hashOf(model, { ...place, view: "truth" })}>All methods against the truth</a></p>`}
    <div class="facts">
      ${model.head.facts.map(([value, label]) => html`<div class="fact"><b>${Number.isInteger(value) ? value.toLocaleString("en-US") : number(value)}</b><span>${label}</span></div>`)}
    </div>
    <${Scale} end=${model.end(m)} />
    ${top.length > 0
      ? html`<${StepTable} model=${model} place=${place} steps=${top} methods=${model.methods.map((_, i) => i)} times=${model.methods[m].topTimes}
          caption=${`The ${top.length} most decisive steps: largest absolute credit under ${model.methods[m].label}`} />`
      : html`<p class="notice">All credit is zero: the rewards of every group tie, or none is scored. See Data health.</p>`}
    <${Groups} model=${model} place=${place} />
    <h2>Methods</h2>
    ${model.methods.map((method) => html`<${Method} method=${method} />`)}
  </section>`;
}
