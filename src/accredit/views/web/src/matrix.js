// Rows rollouts by reward, columns steps, cell = credit; a ring marks a state that another row shares.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { clip, count, glyph, number, shade, signed } from "./format.js";
import { Figure, Scale } from "./figure.js";
import { trueCells, trueColumns } from "./steplist.js";
import { useWindow } from "./virtual.js";

const ROW = 30;
const LABEL = 190;
const NARROW = 24;
const WIDE = 66;
const MOST_CELLS = 1300;

// Where do siblings part? The step at which mean credit of better and worse rollouts differs most.
function finding(model, g, m) {
  const scored = model.rows(g).filter((r) => model.reward(r) !== null);
  const rewards = scored.map((r) => model.reward(r));
  const mean = rewards.reduce((a, b) => a + b, 0) / (rewards.length || 1);
  const { low, high } = model.groups[g];
  if (scored.length < 2) return scored.length ? "One scored rollout: nothing to compare it with" : "No rollout of this group is scored";
  if (low === high) return `All ${scored.length} rewards tie at ${number(low)}: the outcome says nothing about these steps`;
  const credit = model.credit(m);
  const better = scored.filter((r) => model.reward(r) > mean);
  const worse = scored.filter((r) => model.reward(r) <= mean);
  let best = null;
  const longest = Math.max(...scored.map((r) => model.length(r)));
  for (let t = 0; t < longest; t++) {
    const at = (rows) => rows.filter((r) => t < model.length(r)).map((r) => credit[model.start[r] + t]);
    const a = at(better);
    const b = at(worse);
    // Late steps that few still play would win by chance alone.
    if (a.length * 4 < better.length || b.length * 4 < worse.length) continue;
    const avg = (x) => x.reduce((p, q) => p + q, 0) / x.length;
    const gap = avg(a) - avg(b);
    if (!best || Math.abs(gap) > Math.abs(best.gap)) best = { t, gap, a: avg(a), b: avg(b), na: a.length, nb: b.length };
  }
  if (!best || best.gap === 0) return "Better and worse rollouts get the same credit at every step";
  return `Better and worse rollouts part most at step ${best.t}: mean credit ${signed(best.a)} (n = ${best.na}) against ${signed(best.b)} (n = ${best.nb})`;
}

function label(model, step, r, t, extra) {
  const action = model.action(step);
  return `${model.ids[r]} step ${t}${action ? `, ${clip(action, 80)}` : ""}${extra}`;
}

function Cell({ model, step, r, t, m, cell, wide, sharedHere, sameAsChosen, chosen, pick, columns }) {
  const value = model.credit(m)[step];
  const prefix = model.isPrefix(r, t);
  const missed = !prefix && model.miss(m, step) === "wrong sign";
  const marks = [`cell ${shade(value, model.end(m))}`, sharedHere && "shared", sameAsChosen && "same", chosen && "chosen", prefix && "prefix", missed && "missed"];
  const extra = (prefix ? ", shared with the parent" : "") + (sharedHere ? ", same state as in another rollout" : "") + (missed ? ", wrong sign" : "");
  const shown = prefix ? "┄" : wide ? `${glyph(value)} ${signed(value, 2)}` : glyph(value);
  const told = label(model, step, r, t, extra);
  return html`<div role="gridcell" class=${marks.filter(Boolean).join(" ")} aria-colindex=${t + 3} aria-selected=${chosen}
    tabindex=${chosen ? 0 : -1} data-cell=${chosen ? "chosen" : null} title=${`${signed(value)}, ${told}`}
    aria-label=${`${shown}, ${wide ? "" : `${signed(value)}, `}${told}`} onClick=${() => pick(r, t)}
    style=${{ left: `${t * cell}px`, width: `${cell}px` }}>${shown}</div>`;
}

function moved(model, rows, place, key) {
  const at = rows.indexOf(place.r);
  const by = { ArrowDown: 1, ArrowUp: -1 }[key] ?? 0;
  const r = rows[Math.max(0, Math.min(at + by, rows.length - 1))];
  const last = Math.max(model.length(r) - 1, 0);
  const s = place.s ?? 0;
  const to = { ArrowLeft: s - 1, ArrowRight: s + 1, Home: 0, End: last }[key] ?? s;
  return { r, s: Math.max(0, Math.min(to, last)) };
}

function RowHead({ model, r, chosen, pick }) {
  const reward = model.reward(r);
  return html`<div role="rowheader" class=${`row-head ${chosen ? "chosen" : ""}`} aria-colindex="1"><button type="button" tabindex="-1" onClick=${() => pick(r, 0)} title=${model.ids[r]} aria-label=${`${clip(model.shortId(r), 22)}, ${model.ids[r]}`}>${clip(model.shortId(r), 22)}</button></div>
    <div role="gridcell" class="row-reward" aria-colindex="2" aria-label=${`reward ${reward === null ? "none" : number(reward)}`}>${reward === null ? "none" : number(reward)}</div>`;
}

function useGridFocus(ref, place, rows) {
  // Focus follows the chosen cell only while the grid has it (arrows), never on j/k from elsewhere.
  useEffect(() => {
    const box = ref.current;
    if (box && box.contains(document.activeElement)) box.querySelector("[data-cell=chosen]")?.focus({ preventScroll: true });
  }, [place.r, place.s, rows]);
}

function useColumns(longest, room, s, rowsShown) {
  const cell = Math.max(NARROW, Math.min(WIDE, Math.floor(room / Math.max(longest, 1))));
  const most = Math.max(8, Math.floor(MOST_CELLS / Math.max(rowsShown, 1)));
  const [left, setLeft] = useState(0);
  const from = Math.max(0, Math.floor(left / cell) - 2);
  const visible = Math.ceil(Math.max(room, 200) / cell) + 6;
  const columns = { cell, from, to: Math.min(longest, from + Math.min(visible, most)), setLeft, wide: cell >= 52 };
  return columns;
}

export function Matrix({ model, place, go, shared }) {
  const { g, m } = place;
  const rows = useMemo(() => (g === null ? [] : model.rows(g)), [g]);
  const longest = useMemo(() => Math.max(0, ...rows.map((r) => model.length(r))), [rows]);
  const pick = (r, s) => go({ r, s });
  const view = useWindow(rows.length, ROW, rows.indexOf(place.r), 4);
  const grid = useRef(null);
  const cols = useColumns(longest, view.width - LABEL - 16, place.s, Math.min(rows.length, 30));
  useGridFocus(grid, place, rows);
  useEffect(() => {
    const box = view.ref.current;
    if (!box || place.s === null) return;
    const x = place.s * cols.cell;
    const room = box.clientWidth - LABEL;
    if (x < box.scrollLeft) box.scrollLeft = Math.max(0, x - cols.cell);
    else if (x + 2 * cols.cell > box.scrollLeft + room) box.scrollLeft = x + 3 * cols.cell - room;
  }, [place.s, cols.cell]);
  if (g === null || !rows.length) return html`<p class="notice">This group has no rollout.</p>`;
  const state = model.arrays.state;
  const chosenStep = place.r === null || place.s === null ? -1 : model.start[place.r] + place.s;
  const chosenState = chosenStep >= 0 && shared.has(state[chosenStep]) ? state[chosenStep] : null;
  const onKeyDown = (event) => {
    if (!["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    go(moved(model, rows, place, event.key));
  };
  const steps = [];
  for (let t = cols.from; t < cols.to; t++) steps.push(t);
  const nShared = [...shared.values()].reduce((n, list) => n + list.length, 0);
  const total = rows.reduce((n, r) => n + model.length(r), 0);
  const table = () => ({
    columns: ["rollout", "reward", "step", "action", "credit", "same state in other rollouts", ...trueColumns(model)],
    rows: rows.flatMap((r) => Array.from({ length: model.length(r) }, (_, t) => {
      const step = model.start[r] + t;
      const twins = shared.get(state[step]) ?? [];
      return [model.ids[r], model.reward(r), t, model.action(step), model.credit(m)[step], new Set(twins.map((s) => model.rolloutOf[s]).filter((x) => x !== r)).size, ...trueCells(model, m, step)];
    })),
  });
  return html`<${Figure} name="matrix" title=${finding(model, g, m)} table=${table}
    note=${`${model.groups[g].name}: ${count(rows.length, "rollout")}, ${count(total, "step")}; ${count(nShared, "step")} stand in a state that another rollout shares. Rows by reward, best first; cell = credit under ${model.methods[m].label}.`}
    legend=${html`<div class="legends"><${Scale} end=${model.end(m)} /><span class="legend-mark"><i class="cell z shared"></i> same state as in another row${model.arrays.parent ? html` <i class="cell z prefix">┄</i> drawn at its parent` : ""}${model.truth ? html` <i class="cell z missed"></i> wrong sign against the truth` : ""}</span></div>`}>
    <div class="grid-box scroll" ref=${view.ref} onScroll=${(e) => { view.onScroll(e); cols.setLeft(e.currentTarget.scrollLeft); }} style=${{ maxHeight: "64vh" }}>
      <div role="grid" ref=${grid} aria-label=${`Credit of ${model.groups[g].name}`} aria-rowcount=${rows.length + 1} aria-colcount=${longest + 2} onKeyDown=${onKeyDown} class="grid"
        style=${{ width: `${LABEL + longest * cols.cell}px`, height: `${(rows.length + 1) * ROW}px` }}>
        <div role="row" aria-rowindex="1" class="grid-head">
          <div role="columnheader" class="row-head" aria-colindex="1">rollout</div><div role="columnheader" class="row-reward" aria-colindex="2">reward</div>
          <div role="presentation" class="cells">${steps.map((t) => html`<div role="columnheader" aria-colindex=${t + 3} class=${`col-head ${t === place.s ? "chosen" : ""}`} style=${{ left: `${t * cols.cell}px`, width: `${cols.cell}px` }}>${t}</div>`)}</div>
        </div>
        ${rows.slice(view.first, view.last).map((r, i) => html`<div role="row" key=${r} aria-rowindex=${view.first + i + 2} class="grid-row" style=${{ top: `${(view.first + i + 1) * ROW}px` }}>
          <${RowHead} model=${model} r=${r} chosen=${r === place.r} pick=${pick} />
          <div role="presentation" class="cells">${steps.filter((t) => t < model.length(r)).map((t) => {
            const step = model.start[r] + t;
            return html`<${Cell} key=${t} model=${model} step=${step} r=${r} t=${t} m=${m} cell=${cols.cell} wide=${cols.wide} pick=${pick}
              sharedHere=${shared.has(state[step])} sameAsChosen=${chosenState !== null && state[step] === chosenState} chosen=${step === chosenStep} />`;
          })}</div>
        </div>`)}
      </div>
    </div>
  <//>`;
}
