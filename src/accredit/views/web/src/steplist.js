// A list of steps as links: decisive steps, disagreements, places of the same state.
import { html } from "./html.js";
import { clip, glyph, number, shade, signed } from "./format.js";
import { hashOf } from "./route.js";

export function Chip({ value, end }) {
  return html`<span class=${`chip ${shade(value, end)}`}><span aria-hidden="true">${glyph(value)}</span> ${signed(value)}</span>`;
}

// Where a method misses the truth, as a mark beside its credit.
export function Miss({ model, m, step }) {
  const miss = model.miss(m, step);
  return miss && html`<span class="miss" title=${miss}><span aria-hidden="true">${miss === "no credit" ? "○" : "✗"}</span><span class="hidden">${miss}</span></span>`;
}

export function TrueChip({ model, step }) {
  const value = model.trueOf(step);
  return value === null ? html`<small>unknown</small>` : html`<${Chip} value=${value} end=${model.truth.end} />`;
}

// The truth in the tables of the pictures.
export const trueColumns = (model) => (model.truth ? ["true advantage", "sign"] : []);
export const trueCells = (model, m, step) => (model.truth ? [model.trueOf(step), model.miss(m, step)] : []);

export function stepHref(model, place, step, view = "waterfall") {
  const at = model.place(step);
  return (model.groups[at.g].href ?? "") + hashOf(model, { ...place, ...at, view });
}

export function StepTable({ model, place, steps, methods, caption, times = [] }) {
  return html`<table class="steps">
    <caption>${caption}</caption>
    <thead><tr><th scope="col">Group</th><th scope="col">Rollout</th><th scope="col" class="num">Step</th><th scope="col">Action</th>${model.truth && html`<th scope="col" class="num">Truth</th>`}
      ${methods.map((m) => html`<th scope="col" class="num">${model.methods[m].label}</th>`)}<th scope="col" class="num">Reward</th></tr></thead>
    <tbody>${steps.map((step, i) => {
      const { g, r, s } = model.place(step);
      const reward = model.reward(r);
      return html`<tr key=${step}>
        <td class="cut">${clip(model.groups[g].name, 32)}</td><td class="cut">${clip(model.ids[r], 28)}</td><td class="num">${s}</td>
        <td class="wide"><a href=${stepHref(model, place, step)}>${clip(model.action(step) || `step ${s}`, 90)}</a>${times[i] > 1 && html` <small>${times[i]} times in the group</small>`}</td>
        ${model.truth && html`<td class="num"><${TrueChip} model=${model} step=${step} /></td>`}
        ${methods.map((m) => html`<td class="num"><${Miss} model=${model} m=${m} step=${step} /><${Chip} value=${model.credit(m)[step]} end=${model.end(m)} /></td>`)}
        <td class="num">${reward === null ? "none" : number(reward)}</td></tr>`;
    })}</tbody>
  </table>`;
}
