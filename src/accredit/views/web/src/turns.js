// Rows of turns with a bar each: shared by the waterfall and the parts stack.
import { html } from "./html.js";
import { clip, oneLine } from "./format.js";
import { Axis } from "./axis.js";
import { Chip } from "./steplist.js";
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
      <span class="turn-value"><${Chip} value=${value} end=${model.end(place.m)} /></span>
    </a></li>`;
}

export function Turns({ model, place, scale, axisLabel, rows, view, before, after }) {
  const window = useWindow(rows.length, ROW, place.s);
  return html`<div class="turns scroll" ref=${window.ref} onScroll=${window.onScroll} tabindex="-1">
    <div class="turn-head"><span class="turn-t">step</span><span class="turn-action">action</span><${Axis} scale=${scale} label=${axisLabel} /><span class="turn-value">credit</span></div>
    ${before}
    <ol style=${{ height: `${rows.length * ROW}px`, "--skip": `${window.first * ROW}px` }}>
      ${rows.slice(window.first, window.last).map((row) => html`<${Turn} key=${row.t} model=${model} place=${place} view=${view} ...${row} />`)}
    </ol>
    ${after}
  </div>`;
}
