// Every picture: a sentence, its n and interval, the picture, and the same numbers as a table or CSV.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { number } from "./format.js";

const MOST_CELLS = 1500;

function csvCell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  // A leading = + - @ of rollout text would run as a formula in a spreadsheet.
  const safe = typeof value === "string" && /^[=+\-@\t]/.test(text) ? `'${text}` : text;
  return /[",\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

function save(name, table) {
  const lines = [table.columns, ...table.rows].map((row) => row.map(csvCell).join(","));
  const url = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${name}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function Table({ table, caption }) {
  const most = Math.max(1, Math.floor(MOST_CELLS / table.columns.length));
  const rows = table.rows.slice(0, most);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Table: ${caption}`}>
    <table class="numbers">
      <caption>${caption}${rows.length < table.rows.length ? ` (first ${rows.length} of ${table.rows.length}; the CSV holds all)` : ""}</caption>
      <thead><tr>${table.columns.map((c) => html`<th scope="col">${c}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td class=${typeof cell === "number" ? "num" : ""}>
        ${typeof cell === "number" ? number(cell, 6) : (cell ?? "")}</td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

export function Figure({ name, title, note, table, legend, children, level = 1 }) {
  const [shown, setShown] = useState(false);
  const data = shown ? table() : null;
  return html`<section class="figure" aria-labelledby=${`title-${name}`}>
    <div class="figure-head">
      <div>
        ${level === 1 ? html`<h1 id=${`title-${name}`}>${title}</h1>` : html`<h2 id=${`title-${name}`}>${title}</h2>`}
        <p class="note">${note}</p>
      </div>
      ${table && html`<div class="figure-tools">
        <button type="button" aria-pressed=${shown} onClick=${() => setShown(!shown)}>Table</button>
        <button type="button" onClick=${() => save(name, table())}>CSV</button>
      </div>`}
    </div>
    ${legend}
    ${shown ? html`<${Table} table=${data} caption=${title} />` : children}
  </section>`;
}

export function Scale({ end, top = 5, unit = "credit" }) {
  const steps = [];
  for (let k = -top; k <= top; k++) steps.push(k);
  return html`<div class="scale" role="img"
    aria-label=${`Colour scale: orange is negative, blue is positive; ends at plus and minus ${number(end)}, the 98th percentile of absolute ${unit}; larger values are drawn as the end colour.`}>
    <span class="scale-end">▼ ${number(-end)}</span>
    ${steps.map((k) => html`<i class=${k > 0 ? `p${k}` : k < 0 ? `n${-k}` : "z"}></i>`)}
    <span class="scale-end">▲ ${number(end)}</span>
    <span class="scale-note">${unit}, clipped at its 98th percentile; one scale in all views</span>
  </div>`;
}
