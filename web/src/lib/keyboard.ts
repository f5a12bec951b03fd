/** Keys: one by one, and `g` followed by a letter. Silent while somebody types. */

export interface Keys {
  [combination: string]: () => void;
}

const SECOND_KEY_MS = 1200;

export function listen(keys: Keys, target: EventTarget = window, now: () => number = Date.now, dialogOpen = dialogIsOpen): () => void {
  let prefix = { key: "", at: 0 };
  const pressed = (event: Event): void => {
    const { key, ctrlKey, metaKey, altKey, target: where } = event as KeyboardEvent;
    if (event.defaultPrevented || ctrlKey || metaKey || altKey) return;
    // An open dialog closes itself: the browser does not tell it to if the key counts as used.
    if (key === "Escape" && dialogOpen()) return;
    if (key !== "Escape" && isTyping(where)) return;
    const pending = now() - prefix.at < SECOND_KEY_MS ? prefix.key : "";
    prefix = { key: "", at: 0 };
    const name = pending ? `${pending} ${key}` : key;
    if (keys[name]) {
      event.preventDefault();
      keys[name]();
    } else if (!pending && Object.keys(keys).some((known) => known.startsWith(`${key} `))) {
      prefix = { key, at: now() };
    }
  };
  target.addEventListener("keydown", pressed);
  return () => target.removeEventListener("keydown", pressed);
}

function dialogIsOpen(): boolean {
  return document.querySelector("dialog[open]") !== null;
}

function isTyping(target: EventTarget | null): boolean {
  const element = target as Partial<HTMLElement> | null;
  if (!element?.tagName) return false;
  return /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) || element.isContentEditable === true;
}
