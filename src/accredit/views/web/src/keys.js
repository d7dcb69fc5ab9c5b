// Keyboard: what each key does, one table for the handler and for the help.
export const KEYS = [
  ["j / k", "next / previous turn"],
  ["J / K", "next / previous rollout of the group"],
  ["n / p", "next / previous large |credit|"],
  ["g", "list of groups and rollouts"],
  ["/", "search ids and actions"],
  ["m", "next method"],
  ["c", "compare two methods"],
  ["t", "tokens of this rollout"],
  ["y", "copy the link to what is visible"],
  ["arrows", "move in the matrix, in lists and among tokens"],
  ["Esc", "close, or one level up"],
  ["?", "this help"],
];

const typing = (target) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));

// Single letters can be switched off and are dead while typing (WCAG 2.1.4); Esc always works.
export function listen(actions, lettersOn) {
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.key === "Escape") {
      actions.Escape(event);
      return;
    }
    if (typing(event.target) || !lettersOn() || document.querySelector("dialog[open]")) return;
    const action = actions[event.key];
    if (event.key.length === 1 && action) {
      event.preventDefault();
      action(event);
    }
  };
  document.addEventListener("keydown", onKey);
  return () => document.removeEventListener("keydown", onKey);
}
