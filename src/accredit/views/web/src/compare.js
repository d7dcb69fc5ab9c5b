// Do two methods disagree, and where? Scatter with y = x, sign flips by quadrant, the worst as links.
import { axisBottom, axisLeft } from "d3-axis";
import { scaleLinear } from "d3-scale";
import { select } from "d3-selection";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { count, number, percent, range } from "./format.js";
import { Figure } from "./figure.js";
import { StepTable } from "./steplist.js";
import { useSize } from "./virtual.js";

const PAD = { left: 56, right: 14, top: 14, bottom: 44 };

function pairOf(model, a, b) {
  const pair = model.head.pairs.find((p) => (p.a === a && p.b === b) || (p.a === b && p.b === a));
  if (!pair || pair.a === a) return pair;
  const [pp, pn, np, nn, one, none] = pair.quadrants;
  return { ...pair, quadrants: [pp, np, pn, nn, one, none] };
}

function title(pair, A, B) {
  const [pp, pn, np, nn] = pair.quadrants;
  const both = pp + pn + np + nn;
  if (!both) return `${A} and ${B} never give credit to the same step`;
  const flips = pn + np;
  return flips ? `${A} and ${B} disagree on the sign of ${percent(flips / both)} of the steps that both credit` : `${A} and ${B} agree on every sign`;
}

function note(model, pair, A, B) {
  const [one, none] = pair.quadrants.slice(4);
  const left = model.head.counts.steps - pair.n;
  const rho = pair.rho ? `Spearman rank correlation ${number(pair.rho[0])}, ${range(pair.rho[1], pair.rho[2])} (bootstrap over ${count(pair.groups, "group")})` : "no rank correlation: one side is constant";
  return `${count(pair.n, "step")}${left ? ` (${left.toLocaleString("en-US")} more are of rollouts that a method did not count)` : ""}; ${rho}. One of the two is 0 on ${count(one, "step")}, both on ${count(none, "step")}.`;
}

function paint(canvas, model, a, b, x, y, chosen, size) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = size * ratio;
  canvas.height = size * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const [ca, cb] = [model.credit(a), model.credit(b)];
  const line = (x1, y1, x2, y2, colour, dash) => {
    pen.strokeStyle = style.getPropertyValue(colour);
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
    pen.stroke();
  };
  const [x0, x1] = x.range();
  const [y0, y1] = y.range();
  line(x(0), y0, x(0), y1, "--zero", []);
  line(x0, y(0), x1, y(0), "--zero", []);
  line(x0, y0, x1, y1, "--muted", [5, 4]);
  pen.setLineDash([]);
  const alpha = Math.max(0.25, Math.min(0.8, 800 / model.nSteps));
  for (let s = 0; s < model.nSteps; s++) {
    pen.globalAlpha = alpha;
    pen.fillStyle = style.getPropertyValue(ca[s] * cb[s] < 0 ? "--flip" : "--agree");
    pen.beginPath();
    if (ca[s] * cb[s] < 0) pen.rect(x(ca[s]) - 3, y(cb[s]) - 3, 6, 6);
    else pen.arc(x(ca[s]), y(cb[s]), 3, 0, 7);
    pen.fill();
  }
  pen.globalAlpha = 1;
  if (chosen !== null) {
    pen.strokeStyle = style.getPropertyValue("--focus");
    pen.lineWidth = 2.5;
    pen.beginPath();
    pen.arc(x(ca[chosen]), y(cb[chosen]), 8, 0, 7);
    pen.stroke();
  }
}

function useTheme() {
  const [n, setN] = useState(0);
  useEffect(() => {
    const again = () => setN((k) => k + 1);
    const watch = new MutationObserver(again);
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", again);
    return () => { watch.disconnect(); dark.removeEventListener("change", again); };
  }, []);
  return n;
}

function limits(model, a, b, own) {
  const top = (m) => model.credit(m).reduce((best, v) => Math.max(best, Math.abs(v)), 1e-9);
  if (own) return [top(a), top(b)];
  const both = Math.max(top(a), top(b));
  return [both, both];
}

function Scatter({ model, place, go, own }) {
  const box = useRef(null);
  const canvas = useRef(null);
  const [gx, gy] = [useRef(null), useRef(null)];
  const { width } = useSize(box);
  const theme = useTheme();
  const { m: a, vs: b } = place;
  const size = Math.max(260, Math.min(width, 540));
  const [x, y] = useMemo(() => {
    const [lx, ly] = limits(model, a, b, own);
    return [scaleLinear([-lx * 1.05, lx * 1.05], [PAD.left, size - PAD.right]), scaleLinear([-ly * 1.05, ly * 1.05], [size - PAD.bottom, PAD.top])];
  }, [a, b, own, size]);
  const chosen = place.r === null || place.s === null ? null : model.start[place.r] + place.s;
  useLayoutEffect(() => {
    if (!width) return;
    paint(canvas.current, model, a, b, x, y, chosen, size);
    const ticks = (axis) => axis.ticks(6).tickFormat((v) => number(v));
    select(gx.current).call(ticks(axisBottom(x))).attr("font-family", null).attr("font-size", null);
    select(gy.current).call(ticks(axisLeft(y))).attr("font-family", null).attr("font-size", null);
  }, [x, y, chosen, width, theme]);
  const onClick = (event) => {
    const at = canvas.current.getBoundingClientRect();
    const [px, py] = [event.clientX - at.left, event.clientY - at.top];
    const [ca, cb] = [model.credit(a), model.credit(b)];
    let best = -1;
    let near = 15 ** 2;
    for (let s = 0; s < model.nSteps; s++) {
      const d = (x(ca[s]) - px) ** 2 + (y(cb[s]) - py) ** 2;
      if (d < near) [best, near] = [s, d];
    }
    if (best >= 0) go(model.place(best));
  };
  const [A, B] = [model.methods[a].label, model.methods[b].label];
  return html`<div class="scatter" ref=${box}><div class="scatter-box" style=${{ width: `${size}px`, height: `${size}px` }}>
    <canvas ref=${canvas} style=${{ width: `${size}px`, height: `${size}px` }} onClick=${onClick} role="img" aria-label=${`Scatter of step credit: ${A} across, ${B} up, dashed line y = x. The numbers are in the table and in the list of largest disagreements.`}></canvas>
    <svg width=${size} height=${size} aria-hidden="true"><g ref=${gx} transform=${`translate(0,${size - PAD.bottom})`}></g><g ref=${gy} transform=${`translate(${PAD.left},0)`}></g>
      <text class="axis-name" x=${(size + PAD.left) / 2} y=${size - 8} text-anchor="middle">${A}, credit</text>
      <text class="axis-name" transform=${`translate(13,${(size - PAD.bottom) / 2}) rotate(-90)`} text-anchor="middle">${B}, credit</text></svg>
  </div></div>`;
}

function Quadrants({ pair, A, B }) {
  const [pp, pn, np, nn, one, none] = pair.quadrants;
  const all = pp + pn + np + nn + one + none;
  const cell = (n, flip) => html`<td class=${`num ${flip ? "flip" : ""}`}>${n.toLocaleString("en-US")} <small>${percent(all ? n / all : 0)}</small></td>`;
  return html`<table class="quadrants"><caption>Steps by sign. The outlined fields are sign flips.</caption>
    <thead><tr><td></td><th scope="col">${B} ▲</th><th scope="col">${B} ▼</th></tr></thead>
    <tbody><tr><th scope="row">${A} ▲</th>${cell(pp)}${cell(pn, true)}</tr><tr><th scope="row">${A} ▼</th>${cell(np, true)}${cell(nn)}</tr></tbody>
  </table>`;
}

export function Compare({ model, place, go }) {
  const { m, vs } = place;
  const [own, setOwn] = useState(null);
  if (vs === null) return html`<p class="notice">A comparison needs two methods: accredit report rollouts.jsonl -m grpo -m gigpo</p>`;
  const pair = pairOf(model, m, vs);
  const [A, B] = [model.methods[m].label, model.methods[vs].label];
  const [low, high] = [model.end(m), model.end(vs)].sort((p, q) => p - q);
  const scaled = own ?? high > 5 * low;
  const table = () => ({
    columns: ["group", "rollout", "step", "action", A, B],
    rows: Array.from({ length: model.nSteps }, (_, s) => {
      const at = model.place(s);
      return [model.groups[at.g].name, model.ids[at.r], at.s, model.action(s), model.credit(m)[s], model.credit(vs)[s]];
    }),
  });
  return html`<${Figure} name="compare" title=${title(pair, A, B)} note=${note(model, pair, A, B)} table=${table}
    legend=${html`<div class="legends"><label>against <select value=${vs} onChange=${(e) => go({ vs: Number(e.target.value) })}>
        ${model.methods.map((x, i) => i !== m && html`<option value=${i} selected=${i === vs}>${x.label}</option>`)}</select></label>
      <label class="check"><input type="checkbox" checked=${scaled} onChange=${(e) => setOwn(e.target.checked)} /> each axis on its own scale</label>
      <span class="key"><i class="agree"></i> same sign</span><span class="key"><i class="flip"></i> sign flips</span></div>`}>
    <div class="compare"><${Scatter} model=${model} place=${place} go=${go} own=${scaled} />
      <div><${Quadrants} pair=${pair} A=${A} B=${B} /><p class="note">A click on a point opens its turn.${scaled ? " The axes differ: the dashed line joins equal shares of each method's largest credit." : " Equal axes; dashed line y = x."}${model.head.sampled ? ` The picture shows ${count(model.nSteps, "step")} of the whole.` : ""}</p></div></div>
    <${StepTable} model=${model} place=${place} steps=${pair.worst} methods=${[m, vs]} caption=${`The ${pair.worst.length} largest disagreements, each credit in units of its method's root mean square`} />
  <//>`;
}

