// Which tokens pay: text (or ids) on a diverging background, equal neighbours merged, one strip a turn.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { clip, count, oneLine, percent, shade, signed } from "./format.js";
import { Figure, Scale } from "./figure.js";
import { Chip } from "./steplist.js";

const AROUND = 3;
const MOST_RUNS = 900;
const OBSERVATION = 600;

function percentile(sizes, p) {
  const found = sizes.filter((x) => x > 0).sort((a, b) => a - b);
  return found.length ? found[Math.min(found.length - 1, Math.floor(p * found.length))] : 1;
}

// token offsets of the group's steps, from the counts in the index
function offsetsOf(model, g) {
  const from = model.start[model.first[g]];
  const to = model.start[model.first[g + 1]];
  const offsets = new Int32Array(to - from + 1);
  for (let s = from; s < to; s++) offsets[s - from + 1] = offsets[s - from] + model.arrays.tokens[s];
  return offsets;
}

function valuesOf(group, m, offsets) {
  const store = group.head.methods[m]?.tokens;
  if (!store) return null;
  const { arrays } = group;
  const sum = arrays[`tokensum.${m}`];
  if (store.kind === "turn") return { kind: "turn", sum, at: (i, local) => arrays[`tokenturn.${m}`][local] };
  if (store.kind === "token") return { kind: "token", sum, scale: store.scale, at: (i) => arrays[`token.${m}`][i] * store.scale };
  return { kind: "sum", sum, at: () => null };
}

function runsOf(group, values, offsets, local) {
  const { head, arrays } = group;
  const text = (i) => {
    if (!arrays.token) return null;
    const code = arrays.token[i];
    return head.pieces ? head.pieces[code] : String(head.vocab[code]);
  };
  const runs = [];
  for (let i = offsets[local]; i < offsets[local + 1]; i++) {
    const value = values.at(i, local);
    const last = runs[runs.length - 1];
    const piece = text(i);
    if (last && last.value === value) {
      last.n += 1;
      if (piece !== null) last.text += (head.pieces ? "" : " ") + piece;
    } else runs.push({ from: i - offsets[local], n: 1, value, text: piece ?? "" });
  }
  return runs;
}

function said(run) {
  const where = run.n === 1 ? `token ${run.from}` : `tokens ${run.from} to ${run.from + run.n - 1}`;
  return `${where}: ${signed(run.value)} ${run.n > 1 ? "each" : ""} ${run.text ? `“${clip(run.text, 60)}”` : ""}`;
}

function Runs({ runs, end, isText, name, say }) {
  const [at, setAt] = useState(0);
  const [most, setMost] = useState(MOST_RUNS);
  const ref = useRef(null);
  const shown = runs.slice(0, most);
  const onKeyDown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(at + by, shown.length - 1));
    setAt(next);
    ref.current.children[next]?.focus();
  };
  return html`<div class=${`runs ${isText ? "text" : "ids"}`} role="listbox" aria-label=${name} ref=${ref} onKeyDown=${onKeyDown}>
    ${shown.map((run, i) => html`<span role="option" aria-selected=${i === at} tabindex=${i === at ? 0 : -1} class=${`run ${shade(run.value, end, 3)}`}
      title=${said(run)} aria-label=${said(run)} onFocus=${() => say(said(run))} onClick=${() => { setAt(i); say(said(run)); }}>${run.text || "▪".repeat(Math.min(run.n, 60))}</span>`)}
  </div>
  ${runs.length > most && html`<button type="button" onClick=${() => setMost(most + MOST_RUNS)}>Show ${Math.min(MOST_RUNS, runs.length - most)} more of ${runs.length} runs</button>`}`;
}

function textAt(group, name, local) {
  const codes = group.arrays[`text.${name}`];
  return codes && codes[local] >= 0 ? group.head.text[name][codes[local]] : "";
}

function Turn({ model, place, go, group, values, offsets, end, t, say }) {
  const ref = useRef(null);
  const step = model.start[place.r] + t;
  const local = step - model.start[model.first[place.g]];
  const runs = useMemo(() => (values.kind === "sum" ? [] : runsOf(group, values, offsets, local)), [group, place.m, local]);
  const n = offsets[local + 1] - offsets[local];
  const chosen = t === place.s;
  useEffect(() => { if (chosen) ref.current.scrollIntoView({ block: "nearest" }); }, [chosen]);
  // The action is what the policy did; `text` may be what it saw, so it is coloured only where there is no action.
  const action = textAt(group, "action", local);
  const text = textAt(group, "text", local);
  const spoken = action || text;
  const answer = textAt(group, "observation", local);
  const hasIds = Boolean(group.arrays.token);
  // A turn whose tokens all carry one number may show its words instead of its ids.
  const asText = !group.head.pieces && spoken && runs.length <= 1;
  const frozen = model.arrays.frozen[step];
  return html`<article class=${`token-turn ${chosen ? "chosen" : ""}`} ref=${ref} aria-label=${`turn ${t}`}>
    <h2><button type="button" class="plain" onClick=${() => go({ s: t })}>step ${t}</button> <${Chip} value=${model.credit(place.m)[step]} end=${model.end(place.m)} />
      <small>${count(n, "token")}, their sum ${signed(values.sum[local])}${frozen ? ", not trained" : ""}</small></h2>
    ${action && text && text !== action && html`<p class="other brief">${clip(oneLine(text), OBSERVATION)}</p>`}
    ${n === 0 || values.kind === "sum"
      ? html`<p class="other">${spoken || "no policy token"}</p>`
      : asText
        ? html`<${Runs} runs=${[{ ...runs[0], text: spoken }]} end=${end} isText=${true} name=${`tokens of turn ${t}`} say=${say} />`
        : html`<${Runs} runs=${runs} end=${end} isText=${Boolean(group.head.pieces)} name=${`tokens of turn ${t}`} say=${say} />${!group.head.pieces && hasIds && spoken && html`<p class="other">${action ? "action" : "text"}: ${spoken}</p>`}`}
    ${answer && html`<p class="other brief">${clip(oneLine(answer), OBSERVATION)}</p>`}
  </article>`;
}

function sizesOf(model, place, values, offsets) {
  const base = model.start[model.first[place.g]];
  const sizes = [];
  for (let t = 0; t < model.length(place.r); t++) {
    const local = model.start[place.r] - base + t;
    for (let i = offsets[local]; i < offsets[local + 1]; i++) sizes.push(Math.abs(values.at(i, local)));
  }
  return sizes;
}

function title(model, place, values, sizes) {
  const id = clip(model.ids[place.r], 40);
  if (values.kind === "sum") return `${id}: sums a turn only`;
  if (values.kind === "turn") return `Every token of a turn of ${id} carries the same number`;
  const sorted = [...sizes].sort((a, b) => b - a);
  const all = sorted.reduce((a, b) => a + b, 0);
  const top = Math.max(1, Math.round(sorted.length / 100));
  const held = sorted.slice(0, top).reduce((a, b) => a + b, 0);
  if (!all) return `${id}: every token has 0`;
  return sorted.length < 150 ? `The largest of ${count(sorted.length, "token")} of ${id} holds ${percent(held / all)} of its absolute credit`
    : `The top 1 % of tokens of ${id} (${top}) hold ${percent(held / all)} of its absolute credit`;
}

export function Tokens({ model, place, go, group }) {
  const [line, setLine] = useState("");
  const offsets = useMemo(() => (place.g === null ? null : offsetsOf(model, place.g)), [place.g]);
  const values = group && offsets ? valuesOf(group, place.m, offsets) : null;
  const sizes = useMemo(() => (values && values.kind !== "sum" && place.r !== null ? sizesOf(model, place, values, offsets) : []), [group, place.r, place.m]);
  if (place.r === null || !offsets) return html`<p class="notice">Choose a rollout.</p>`;
  if (!group) return html`<p class="note">Opening the group …</p>`;
  if (!values) return html`<${Figure} name="tokens" title="These rollouts hold no policy tokens" note="Give tokens or n_tokens in each step to see how step credit is spread over them." />`;
  const end = percentile(sizes, 0.98);
  const n = model.length(place.r);
  const from = Math.max(0, Math.min((place.s ?? 0) - AROUND, n - 2 * AROUND - 1));
  const turns = [];
  for (let t = from; t < Math.min(n, from + 2 * AROUND + 1); t++) turns.push(t);
  const base = model.start[place.r] - model.start[model.first[place.g]];
  const table = () => ({
    columns: ["step", "token", "id", "advantage"],
    rows: Array.from({ length: n }, (_, t) => t).flatMap((t) => {
      const rows = [];
      for (let i = offsets[base + t]; i < offsets[base + t + 1]; i++) rows.push([t, i - offsets[base + t], group.arrays.token ? group.head.vocab[group.arrays.token[i]] : null, values.at(i, base + t)]);
      return rows;
    }),
  });
  const exact = values.kind === "token" ? ` Stored in 8 bits: exact to ${signed(values.scale / 2, 2).replace("+", "± ")}.` : "";
  return html`<${Figure} name="tokens" title=${title(model, place, values, sizes)} table=${table}
    note=${`${count(sizes.length, "policy token")} in ${count(n, "turn")}, advantages of ${model.methods[place.m].label}; turns ${turns[0] ?? 0} to ${turns[turns.length - 1] ?? 0} are shown. Grey text is not the policy's: it gets no gradient.${exact}`}
    legend=${html`<div class="legends"><${Scale} end=${end} top=${3} unit="token advantage of this rollout" /></div>`}>
    <p class="readout" aria-live="polite">${line || "Choose a token, then use the arrows to read each number."}</p>
    ${turns.map((t) => html`<${Turn} key=${`${place.r}.${t}`} model=${model} place=${place} go=${go} group=${group} values=${values} offsets=${offsets} end=${end} t=${t} say=${setLine} />`)}
  <//>`;
}

