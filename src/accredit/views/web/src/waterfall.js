// How did V(s0) become R? One row a turn, running total, end mark, and what does not add up as its own bar.
import { useMemo } from "preact/hooks";
import { html } from "./html.js";
import { clip, count, number, signed } from "./format.js";
import { Figure } from "./figure.js";
import { percentScale } from "./axis.js";
import { Misses, Turns } from "./turns.js";
import { trueCells, trueColumns } from "./steplist.js";

// float32 sums of hundreds of turns stay well inside this share of the largest number.
const CLOSE = 1e-4;

export function sums(model, group, place) {
  const { r, m } = place;
  const from = model.start[r];
  const n = model.length(r);
  const base = from - model.start[model.first[place.g]];
  const credit = model.credit(m);
  const values = group?.arrays.value;
  const known = (t) => Boolean(values) && group.arrays.value_ok[base + t] === 1;
  const isValue = model.methods[m].value && n > 0 && known(0);
  const start = isValue ? values[base] : 0;
  const rows = [];
  let running = start;
  for (let t = 0; t < n; t++) {
    const value = credit[from + t];
    rows.push({ t, step: from + t, value, before: running, after: running + value, v: isValue && known(t) ? values[base + t] : null });
    running += value;
  }
  const total = isValue ? group.arrays.total[r - model.first[place.g]] : null;
  const residual = isValue ? total - running : 0;
  const size = Math.max(...rows.map((x) => Math.max(Math.abs(x.before), Math.abs(x.after))), Math.abs(total ?? 0), 1e-12);
  return { rows, start, end: running, total, residual, isValue, adds: Math.abs(residual) <= CLOSE * size };
}

function Bar({ scale, row, end, start }) {
  const [a, b] = [scale(row.before), scale(row.after)];
  const left = Math.min(a, b);
  return html`<svg width="100%" height="100%" aria-hidden="true">
    <line class="zero" x1=${`${scale(0)}%`} x2=${`${scale(0)}%`} y1="0" y2="100%" />
    ${start !== 0 && html`<line class="from" x1=${`${scale(start)}%`} x2=${`${scale(start)}%`} y1="0" y2="100%" />`}
    <line class="link" x1=${`${a}%`} x2=${`${a}%`} y1="0" y2="50%" />
    <line class="link" x1=${`${b}%`} x2=${`${b}%`} y1="50%" y2="100%" />
    <rect class=${`bar ${row.value > 0 ? "up" : row.value < 0 ? "down" : "nil"}`} x=${`${left}%`} width=${`${Math.max(Math.abs(a - b), 0.3)}%`} y="7" height="20" rx="2" />
    ${row.v !== null && html`<circle class="v" cx=${`${scale(row.v)}%`} cy="17" r="3" />`}
  </svg>`;
}

function Mark({ scale, name, value, at, kind, from = 0 }) {
  return html`<div class=${`mark ${kind}`}><span class="turn-t"></span><span class="turn-action">${name}</span>
    <span class="turn-bar"><svg width="100%" height="100%" aria-hidden="true">
      <defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch" x1="0" x2="0" y1="0" y2="6" /></pattern></defs>
      <line class="zero" x1=${`${scale(0)}%`} x2=${`${scale(0)}%`} y1="0" y2="100%" />
      ${kind === "residual"
        ? html`<rect class="residual" x=${`${Math.min(scale(from), scale(at))}%`} width=${`${Math.max(Math.abs(scale(from) - scale(at)), 0.3)}%`} y="4" height="14" />`
        : html`<line class="end" x1=${`${scale(at)}%`} x2=${`${scale(at)}%`} y1="2" y2="20" />`}
    </svg></span><span class="turn-value">${value}</span></div>`;
}

function title(model, place, s) {
  const id = clip(model.ids[place.r], 40);
  if (!s.rows.length) return `${id} has no step`;
  const top = s.rows.reduce((a, b) => (Math.abs(b.value) > Math.abs(a.value) ? b : a));
  if (top.value === 0) return `${id}: no step got any credit`;
  const same = s.rows.every((x) => Math.abs(x.value - top.value) <= 1e-6 * Math.abs(top.value));
  if (same && s.rows.length > 1) return `${id}: every step got the same credit, ${signed(top.value)}`;
  const action = model.action(top.step);
  return `Step ${top.t}${action ? ` (${clip(action, 48)})` : ""} decided ${id} most: ${signed(top.value)}`;
}

function note(model, place, s) {
  const reward = model.reward(place.r);
  const sum = s.end - s.start;
  const paid = `${count(s.rows.length, "turn")}, reward ${reward === null ? "none" : number(reward)}`;
  if (!s.isValue) return `${paid}. Credit under ${model.methods[place.m].label}, running total from 0; the bars sum to ${signed(sum)}.`;
  const goal = `R − V(s0) = ${number(s.total)} − ${number(s.start)} = ${signed(s.total - s.start)}`;
  return s.adds ? `${paid}. Sum check: the bars add to ${goal}.` : `${paid}. Sum check: the bars add to ${signed(sum)}, but ${goal}; the residual ${signed(s.residual)} is hatched.`;
}

export function Waterfall({ model, place, group }) {
  const s = useMemo(() => (place.r === null ? null : sums(model, group, place)), [place.r, place.m, group]);
  const scale = useMemo(() => {
    if (!s) return null;
    const all = s.rows.flatMap((x) => [x.before, x.after, x.v ?? 0]).concat([0, s.start, s.total ?? 0, s.end]);
    return percentScale(Math.min(...all), Math.max(...all, Math.min(...all) + 1e-9));
  }, [s]);
  if (!s) return html`<p class="notice">Choose a rollout.</p>`;
  if (model.methods[place.m].value && !group) return html`<p class="note">Opening the group …</p>`;
  const rows = s.rows.map((row) => ({ ...row, bar: html`<${Bar} scale=${scale} row=${row} end=${s.end} start=${s.start} />` }));
  const table = () => ({
    columns: ["step", "action", "before", "credit", "after", "V recorded", ...trueColumns(model)],
    rows: s.rows.map((x) => [x.t, model.action(x.step), x.before, x.value, x.after, x.v, ...trueCells(model, place.m, x.step)]),
  });
  const before = s.isValue && html`<${Mark} scale=${scale} kind="start" name="V(s0), expected at the start" value=${number(s.start)} at=${s.start} />`;
  const after = html`${s.isValue && !s.adds && html`<${Mark} scale=${scale} kind="residual" name="residual: not explained by the bars" value=${signed(s.residual)} from=${s.end} at=${s.total} />`}
    <${Mark} scale=${scale} kind="total" name=${s.isValue ? "R, what it was paid" : "sum of credit"} value=${s.isValue ? number(s.total) : signed(s.end)} at=${s.isValue ? s.total : s.end} />`;
  return html`<${Figure} name="waterfall" title=${title(model, place, s)} note=${note(model, place, s)} table=${table}
    legend=${html`<p class="legends"><span class="key"><i class="up"></i> ▲ raises</span><span class="key"><i class="down"></i> ▼ lowers</span>${s.isValue && html`<span class="key"><i class="dot"></i> V recorded before the turn</span>`}<${Misses} model=${model} m=${place.m} steps=${s.rows.map((x) => x.step)} /><span class="note">axis in reward units; zero is the solid line</span></p>`}>
    <${Turns} model=${model} place=${place} scale=${scale} rows=${rows} view="waterfall" axisLabel=${s.isValue ? "value, reward units" : "running total of credit"} before=${before} after=${after} />
  <//>`;
}
