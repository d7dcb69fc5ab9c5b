// Rows of turns with a bar each: shared by the waterfall and the parts stack.
import { html } from "./html.js";
import { clip, count, oneLine } from "./format.js";
import { Axis } from "./axis.js";
import { Chip, Miss, TrueChip } from "./steplist.js";
import { hashOf } from "./route.js";
import { useWindow } from "./virtual.js";

export const ROW = 34;

export function Turn({ model, place, step, t, bar, view, value }) {
  const chosen = t === place.s;
  const agent = model.agent(step);
  const action = oneLine(model.action(step)) || `step ${t}`;
  return html`<li class=${`turn ${chosen ? "chosen" : ""}`} style=${{ height: `${ROW}px` }}>
    <a href=${hashOf(model, { ...place, s: t, view })} aria-current=${chosen ? "step" : null} title=${action}>
      <span class="turn-t">${t}</span><span class="turn-action">${agent && html`<em>${clip(agent, 16)} </em>`}${clip(action, 120)}</span>
      <span class="turn-bar">${bar}</span>
      <span class="turn-value"><${Miss} model=${model} m=${place.m} step=${step} /><${Chip} value=${value} end=${model.end(place.m)} /></span>
      ${model.truth && html`<span class="turn-true"><span class="hidden">true advantage </span><${TrueChip} model=${model} step=${step} /></span>`}
    </a></li>`;
}

// How often the credit of some steps misses a clear truth, and what the marks mean.
export function Misses({ model, m, steps }) {
  if (!model.truth) return null;
  const clear = steps.filter((s) => model.arrays.truth_sure[s] === 2);
  const missed = (what) => clear.filter((s) => model.miss(m, s) === what).length;
  const mark = (glyph) => html`<b class="miss" aria-hidden="true">${glyph}</b>`;
  return html`<span class="key">${mark("✗")} wrong sign on ${missed("wrong sign")}</span><span class="key">${mark("○")} no credit on ${missed("no credit")} of ${count(clear.length, "step")} with a clear truth</span>`;
}

export function Turns({ model, place, scale, axisLabel, rows, view, before, after }) {
  const window = useWindow(rows.length, ROW, place.s);
  return html`<div class=${`turns scroll ${model.truth ? "true" : ""}`} ref=${window.ref} onScroll=${window.onScroll} tabindex="-1">
    <div class="turn-head"><span class="turn-t">step</span><span class="turn-action">action</span><${Axis} scale=${scale} label=${axisLabel} /><span class="turn-value">credit</span>${model.truth && html`<span class="turn-true">truth</span>`}</div>
    ${before}
    <ol style=${{ height: `${rows.length * ROW}px`, "--skip": `${window.first * ROW}px` }}>
      ${rows.slice(window.first, window.last).map((row) => html`<${Turn} key=${row.t} model=${model} place=${place} view=${view} ...${row} />`)}
    </ol>
    ${after}
  </div>`;
}
