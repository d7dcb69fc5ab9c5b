// May I trust the input? Findings by code, what was left out, distributions.
import { html } from "./html.js";
import { clip, count, number, percent } from "./format.js";
import { Figure } from "./figure.js";
import { stepHref } from "./steplist.js";

const MARKS = { error: "✖ error", warning: "▲ warning", info: "● info" };

function title(h) {
  const errors = h.findings.filter((f) => f.severity === "error").length;
  const warnings = h.findings.filter((f) => f.severity === "warning").length;
  const groups = Object.values(h.spread).reduce((a, b) => a + b, 0);
  const flat = groups - h.spread.mixed;
  const spread = flat ? `${count(flat, "group")} of ${groups} ${flat === 1 ? "has" : "have"} no spread of rewards` : `all ${groups} groups have mixed rewards`;
  const found = errors ? `${count(errors, "error")} and ${count(warnings, "warning")} in the input` : warnings ? `${count(warnings, "warning")} and no error in the input` : h.checked ? "Nothing wrong was found in the input" : "Reading and the methods noticed nothing wrong (check was not asked)";
  return `${found}; ${spread}`;
}

function Findings({ model, place, findings }) {
  if (!findings.length) return html`<p>No finding.</p>`;
  return html`<table class="steps findings"><caption>Findings by code</caption>
    <thead><tr><th scope="col">Code</th><th scope="col">Severity</th><th scope="col" class="num">Count</th><th scope="col">What</th><th scope="col">First example</th></tr></thead>
    <tbody>${findings.map((f) => html`<tr><td><code>${f.code}</code></td><td class=${`sev ${f.severity}`}>${MARKS[f.severity]}</td><td class="num">${f.count.toLocaleString("en-US")}</td>
      <td class="wide">${f.message}${f.hint && html`<br /><small>${f.hint}</small>`}</td>
      <td>${f.link ? html`<a href=${stepHref(model, place, model.start[f.link[0]] + f.link[1])}>${clip(f.places[0], 60)}</a>` : clip(f.places[0] ?? "the whole batch", 60)}</td></tr>`)}</tbody></table>`;
}

function bars(data) {
  if (data.named) return data.named.map(([label, n]) => ({ label, n }));
  if (data.values) return data.values.map((v, i) => ({ label: number(v, 4), n: data.counts[i] }));
  return data.counts.map((n, i) => ({ label: `${number(data.edges[i], 3)} to ${number(data.edges[i + 1], 3)}`, n }));
}

function Bars({ name, heading, unit, data }) {
  const list = bars(data);
  const top = Math.max(...list.map((b) => b.n), 1);
  const total = list.reduce((n, b) => n + b.n, 0);
  const width = 100 / Math.max(list.length, 1);
  const few = list.length <= 12;
  const table = () => ({ columns: [unit, "count"], rows: list.map((b) => [b.label, b.n]) });
  return html`<div class="bars"><${Figure} level=${2} name=${name} title=${heading} note=${`n = ${total.toLocaleString("en-US")}${data.mean === undefined || !total ? "" : `, mean ${number(data.mean)}`}`} table=${table}>
    <svg class="hist" width="100%" height="120" role="img" aria-label=${`${heading}. ${list.slice(0, 24).map((b) => `${b.label}: ${b.n}`).join("; ")}`}>
      <line class="zero" x1="0" x2="100%" y1="100" y2="100" />
      ${list.map((b, i) => html`<rect x=${`${i * width + width * 0.08}%`} width=${`${width * 0.84}%`} y=${100 - (b.n / top) * 84} height=${(b.n / top) * 84}><title>${`${b.label}: ${b.n}`}</title></rect>
        ${few && html`<text x=${`${(i + 0.5) * width}%`} y=${94 - (b.n / top) * 84} text-anchor="middle">${b.n.toLocaleString("en-US")}</text>`}
        ${(few || i === 0 || i === list.length - 1) && html`<text x=${`${few ? (i + 0.5) * width : i === 0 ? 0 : 100}%`} y="115" text-anchor=${few ? "middle" : i === 0 ? "start" : "end"}>${clip(b.label, few ? 12 : 20)}</text>`}`)}
    </svg><p class="unit">${unit}</p>
  <//></div>`;
}

function Excluded({ excluded }) {
  if (!excluded.n) return html`<p>Every rollout that was read is in the report.</p>`;
  return html`<table class="steps"><caption>${count(excluded.n, "rollout")} left out${excluded.rows.length < excluded.n ? ` (first ${excluded.rows.length})` : ""}</caption>
    <thead><tr><th scope="col">Rollout</th><th scope="col">Why</th><th scope="col">By</th></tr></thead>
    <tbody>${excluded.rows.map((e) => html`<tr><td>${e.id}</td><td class="wide">${e.reason}</td><td>${e.methods.join(", ") || "the reader"}</td></tr>`)}</tbody></table>`;
}

export function Health({ model, place }) {
  const h = model.head.health;
  const kinds = Object.entries(h.spread).filter(([, n]) => n > 0);
  const shared = h.visits.n ? `${percent(h.visits.shared / h.visits.n)} of steps stand in a state that another rollout of the group visits` : "No states are recorded: shared-state methods have nothing to compare";
  return html`<${Figure} name="health" title=${title(h)} note=${`${count(model.head.counts.rollouts, "rollout")}, ${count(model.head.counts.steps, "step")}, ${count(model.head.counts.groups, "group")}; ${count(h.unscored, "rollout")} unscored; ${count(h.excluded.n, "rollout")} left out`}
    table=${() => ({ columns: ["code", "severity", "count", "message", "hint", "first example"], rows: h.findings.map((f) => [f.code, f.severity, f.count, f.message, f.hint, f.places[0] ?? ""]) })}>
    <${Findings} model=${model} place=${place} findings=${h.findings} />
    <${Excluded} excluded=${h.excluded} />
    <div class="histograms">
      <${Bars} name="spread" heading=${`${count(h.spread.mixed, "group")} of ${model.head.counts.groups} can teach: their rewards differ`} unit="groups, by kind of reward spread" data=${{ named: kinds }} />
      <${Bars} name="reward" heading=${h.reward.n ? `Mean reward ${number(h.reward.mean)}` : "No reward is recorded"} unit="reward" data=${h.reward} />
      <${Bars} name="length" heading=${`Mean length ${number(h.length.mean)} steps`} unit="steps a rollout" data=${h.length} />
      <${Bars} name="visits" heading=${shared} unit="rollouts of the group that visit a step's state" data=${h.visits} />
    </div>
  <//>`;
}
