// Which term of the method paid: stacked signed bars of the parts, a turn.
import { useMemo } from "preact/hooks";
import { html } from "./html.js";
import { clip, count, percent, signed } from "./format.js";
import { Figure } from "./figure.js";
import { percentScale } from "./axis.js";
import { Misses, Turns } from "./turns.js";
import { trueCells, trueColumns } from "./steplist.js";

function stack(model, group, place) {
  const { g, r, m } = place;
  const names = model.methods[m].parts;
  const base = model.start[r] - model.start[model.first[g]];
  const arrays = names.map((_, p) => group.arrays[`part.${m}.${p}`]);
  const rows = [];
  for (let t = 0; t < model.length(r); t++) {
    const parts = arrays.map((values) => values[base + t]);
    rows.push({ t, step: model.start[r] + t, value: model.credit(m)[model.start[r] + t], parts });
  }
  const shares = names.map((_, p) => rows.reduce((n, row) => n + Math.abs(row.parts[p]), 0));
  return { names, rows, shares, all: shares.reduce((a, b) => a + b, 0) };
}

function Bar({ scale, parts }) {
  let up = 0;
  let down = 0;
  return html`<svg width="100%" height="100%" aria-hidden="true">
    <line class="zero" x1=${`${scale(0)}%`} x2=${`${scale(0)}%`} y1="0" y2="100%" />
    ${parts.map((value, p) => {
      const from = value > 0 ? up : down;
      const to = from + value;
      if (value > 0) up = to; else down = to;
      const left = Math.min(scale(from), scale(to));
      return value !== 0 && html`<rect class=${`part${p % 6}`} x=${`${left}%`} width=${`${Math.abs(scale(from) - scale(to))}%`} y="7" height="20" />`;
    })}
  </svg>`;
}

function title(s, id) {
  if (!s.all) return `${id}: every part is zero`;
  const top = s.shares.indexOf(Math.max(...s.shares));
  return `The ${s.names[top]} term paid ${percent(s.shares[top] / s.all)} of what moved ${id}`;
}

export function Parts({ model, place, group }) {
  const method = model.methods[place.m];
  const s = useMemo(() => (group && place.r !== null && method.parts.length > 1 ? stack(model, group, place) : null), [group, place.r, place.m]);
  const scale = useMemo(() => {
    if (!s) return null;
    const ends = s.rows.flatMap((row) => [row.parts.filter((x) => x > 0).reduce((a, b) => a + b, 0), row.parts.filter((x) => x < 0).reduce((a, b) => a + b, 0)]);
    return percentScale(Math.min(0, ...ends), Math.max(1e-9, ...ends));
  }, [s]);
  if (method.parts.length < 2) {
    return html`<${Figure} name="parts" title=${`${method.label} has one term`} note=${`Its credit is not a sum of named parts, so there is nothing to stack${method.parts.length ? ` (${method.parts[0]})` : ""}. Choose another method, or read the waterfall.`} />`;
  }
  if (!s) return html`<p class="note">Opening the group …</p>`;
  const rows = s.rows.map((row) => ({ ...row, bar: html`<${Bar} scale=${scale} parts=${row.parts} />` }));
  const table = () => ({
    columns: ["step", "action", "credit", ...s.names, ...trueColumns(model)],
    rows: s.rows.map((row) => [row.t, model.action(row.step), row.value, ...row.parts, ...trueCells(model, place.m, row.step)]),
  });
  const chosen = place.s === null ? null : s.rows[place.s];
  return html`<${Figure} name="parts" title=${title(s, clip(model.ids[place.r], 40))} table=${table}
    note=${`${method.label}: ${count(s.rows.length, "turn")}; share of the sum of absolute parts. The parts of a turn add up to its credit.`}
    legend=${html`<p class="legends">${s.names.map((name, p) => html`<span class="key"><i class=${`part${p % 6}`}></i> ${name}, ${percent(s.all ? s.shares[p] / s.all : 0)}</span>`)}
      <${Misses} model=${model} m=${place.m} steps=${s.rows.map((row) => row.step)} />
      ${chosen && html`<span class="note">step ${chosen.t}: ${chosen.parts.map((x, p) => `${p ? " " : ""}${signed(x)} ${s.names[p]}`)} = ${signed(chosen.value)}</span>`}</p>`}>
    <${Turns} model=${model} place=${place} scale=${scale} rows=${rows} view="parts" axisLabel="credit, stacked parts" />
  <//>`;
}
