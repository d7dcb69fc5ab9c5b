import { useEffect, useRef } from "preact/hooks";
import { html } from "./html.js";
import { KEYS } from "./keys.js";

export function Help({ open, close, letters, setLetters }) {
  const ref = useRef(null);
  useEffect(() => {
    if (open && !ref.current.open) ref.current.showModal();
    if (!open && ref.current.open) ref.current.close();
  }, [open]);
  return html`<dialog ref=${ref} onClose=${close} aria-labelledby="help-title">
    <h2 id="help-title">Keys</h2>
    <dl class="keys">${KEYS.map(([key, what]) => html`<div><dt>${key.split(" / ").map((k, i) => html`${i > 0 && " "}<kbd>${k}</kbd>`)}</dt><dd>${what}</dd></div>`)}</dl>
    <label class="check"><input type="checkbox" checked=${letters} onChange=${(e) => setLetters(e.target.checked)} /> Single-letter keys</label>
    <h3>Reading the pictures</h3>
    <p>▲ and blue: the step raised the expected reward. ▼ and orange: it lowered it. · and grey: no credit. Size is always also a number or a length.</p>
    <p>The address bar holds what is visible, so a link brings a colleague to the same step. Nothing leaves this page: it works offline.</p>
    <button type="button" onClick=${close}>Close</button>
  </dialog>`;
}
