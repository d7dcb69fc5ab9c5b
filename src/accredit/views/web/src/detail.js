// The chosen step: what was seen and done, every method's credit, the arithmetic, and its twins.
import { html } from "./html.js";
import { clip, count, number, signed } from "./format.js";
import { Chip, TrueChip, stepHref } from "./steplist.js";

const MOST_TWINS = 12;
const OPEN_UP_TO = 1200;

function textAt(group, name, local) {
  const codes = group?.arrays[`text.${name}`];
  return codes && codes[local] >= 0 ? group.head.text[name][codes[local]] : "";
}

function Text({ name, text, open }) {
  if (!text) return null;
  return html`<details open=${open} class="said"><summary>${name}<small>${count(text.length, "character")}</small></summary><pre tabindex="0">${text.replace(/\n\s*\n\s*\n/g, "\n\n")}</pre></details>`;
}

// The true advantage, and how sure it is.
function True({ model, step }) {
  if (!model.truth) return null;
  const value = model.trueOf(step);
  const se = value !== null && model.arrays.truth_se ? model.arrays.truth_se[step] : 0;
  const said = value === null ? "not known of this step" : model.arrays.truth_sure[step] < 2 ? "too near 0 for its sign to be judged" : "true advantage, reward units";
  return html`<tr class="true"><th scope="row">truth</th><td class="mini"><small>${said}${se > 0 && `, standard error ${number(se)}`}</small></td><td class="num"><${TrueChip} model=${model} step=${step} /></td></tr>`;
}

function Credits({ model, place, step, go }) {
  return html`<table class="credits"><caption class="hidden">Credit of this step under each method</caption><tbody><${True} model=${model} step=${step} />${model.methods.map((method, m) => {
    const value = model.credit(m)[step];
    const share = Math.min(Math.abs(value) / method.end, 1) * 50;
    const miss = model.miss(m, step);
    return html`<tr key=${m} class=${m === place.m ? "chosen" : ""}><th scope="row"><button type="button" class="plain" aria-pressed=${m === place.m} onClick=${() => go({ m, vs: m === place.vs ? place.m : place.vs })}>${method.label}</button>${miss && html` <small class="miss">${miss === "no credit" ? "○" : "✗"} ${miss}</small>`}</th>
      <td class="mini"><svg width="100%" height="16" aria-hidden="true"><line class="zero" x1="50%" x2="50%" y1="0" y2="16" /><rect class=${value > 0 ? "up" : "down"} x=${`${value < 0 ? 50 - share : 50}%`} width=${`${share}%`} y="3" height="10" /></svg></td>
      <td class="num"><${Chip} value=${value} end=${method.end} /></td></tr>`;
  })}</tbody></table>`;
}

function Member({ model, place, member }) {
  const [rollout, s, value, note] = member;
  const self = rollout === place.r && s === place.s;
  const name = typeof rollout === "string" ? rollout : model.ids[rollout];
  const label = `${clip(name, 32)}${s === null ? "" : ` step ${s}`}`;
  const linked = typeof rollout === "number" && model.length(rollout) > 0;
  return html`<tr class=${self ? "self" : ""}><td>${linked ? html`<a href=${stepHref(model, place, model.start[rollout] + Math.min(s ?? 0, model.length(rollout) - 1), place.view === "compare" ? "waterfall" : place.view)}>${label}</a>` : label}${note && html` <small>${note}</small>`}</td><td class="num">${number(value, 4)}</td></tr>`;
}

function Term({ model, place, term }) {
  const inputs = Object.entries(term.inputs);
  return html`<div class="term"><h4>${term.name} <span class="num">${signed(term.value, 4)}</span></h4>
    <p class="formula"><code>${term.formula}</code></p>
    ${inputs.length > 0 && html`<p class="inputs">${inputs.map(([k, v]) => html`<span><i>${k}</i> = ${number(v, 5)}</span>`)}</p>`}
    ${term.members.length > 0 && html`<details><summary>compared with ${count(term.members.length + term.more, "place")}</summary><table class="members"><tbody>${term.members.map((x) => html`<${Member} model=${model} place=${place} member=${x} />`)}</tbody></table>${term.more > 0 && html`<p class="note">… ${term.more} more</p>`}</details>`}
  </div>`;
}

function Why({ model, place, group, local }) {
  const told = group?.head.methods[place.m]?.explain?.[local];
  const command = `accredit show FILE -m ${model.methods[place.m].id} --rollout ${model.ids[place.r]}`;
  if (!told) return html`<p class="note">The arithmetic of this step was not stored. On the command line: <code>${command}</code></p>`;
  if (!told.terms.length) return html`<p class="note">${model.methods[place.m].label} does not explain its steps.</p>`;
  return html`${told.terms.map((term) => html`<${Term} model=${model} place=${place} term=${term} />`)}
    ${told.notes.map((note) => html`<p class="note">${note}</p>`)}`;
}

function Twins({ model, place, step, shared }) {
  const twins = (shared.get(model.arrays.state[step]) ?? []).filter((s) => s !== step);
  if (!twins.length) return html`<p class="note">No other step of the group stands in this state.</p>`;
  const view = place.view === "compare" ? "waterfall" : place.view;
  return html`<table class="members"><tbody>${twins.slice(0, MOST_TWINS).map((s) => {
    const at = model.place(s);
    const reward = model.reward(at.r);
    return html`<tr><td><a href=${stepHref(model, place, s, view)}>${clip(model.ids[at.r], 24)} step ${at.s}</a> <small>${clip(model.action(s), 40)}; reward ${reward === null ? "none" : number(reward)}</small></td><td class="num"><${Chip} value=${model.credit(place.m)[s]} end=${model.end(place.m)} /></td></tr>`;
  })}</tbody></table>${twins.length > MOST_TWINS && html`<p class="note">… ${twins.length - MOST_TWINS} more</p>`}`;
}

export function Detail({ model, place, go, group, shared }) {
  if (place.r !== null && !model.length(place.r)) return html`<aside class="detail" aria-label="Chosen step"><p class="note">${clip(model.ids[place.r], 60)} has no steps.</p></aside>`;
  if (place.r === null || place.s === null) return html`<aside class="detail" aria-label="Chosen step"><p class="note">Choose a step: j and k move, n and p jump to large credit.</p></aside>`;
  const step = model.start[place.r] + place.s;
  const local = step - model.start[model.first[place.g]];
  const reward = model.reward(place.r);
  const action = textAt(group, "action", local) || model.action(step);
  const [state, text, answer] = ["state", "text", "observation"].map((name) => textAt(group, name, local));
  const paid = group?.arrays.reward && group.arrays.reward_ok[local] ? group.arrays.reward[local] : null;
  return html`<aside class="detail" aria-label="Chosen step" tabindex="-1">
    <h2>Step ${place.s} <small>of ${model.length(place.r)}</small></h2>
    <p class="where"><b>${clip(model.ids[place.r], 60)}</b> in ${clip(model.groups[place.g].name, 60)}<br />rollout reward ${reward === null ? "none" : number(reward)}${paid !== null ? `, step reward ${signed(paid)}` : ""}${model.agent(step) ? `, agent ${model.agent(step)}` : ""}</p>
    ${action && html`<p class="action">${clip(action, 2000)}</p>`}
    <${Credits} model=${model} place=${place} step=${step} go=${go} />
    <h3>Why ${model.methods[place.m].label} says so</h3>
    <${Why} model=${model} place=${place} group=${group} local=${local} />
    <h3>What it saw and said</h3>
    <${Text} name="state before" text=${state} open=${state.length <= OPEN_UP_TO && state !== text} />
    ${text !== action && html`<${Text} name="text" text=${text} open=${text.length <= OPEN_UP_TO} />`}
    <${Text} name="answer of the environment" text=${answer} open=${answer.length <= OPEN_UP_TO} />
    ${!state && !text && !answer && html`<p class="note">${group ? "No text is recorded for this step." : "Opening the group …"}</p>`}
    <h3>Same state elsewhere</h3>
    <${Twins} model=${model} place=${place} step=${step} shared=${shared} />
  </aside>`;
}

