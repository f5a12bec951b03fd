/** Short words at the bottom of the page that go away by themselves. */

class Notices {
  shown = $state<{ id: number; text: string }[]>([]);
  #next = 0;

  say(text: string): void {
    const id = (this.#next += 1);
    this.shown = [...this.shown.slice(-2), { id, text }];
    setTimeout(() => (this.shown = this.shown.filter((notice) => notice.id !== id)), 2600);
  }
}

export const notices = new Notices();

export async function copy(text: string): Promise<void> {
  const shown = text.length > 40 ? `${text.slice(0, 39)}…` : text;
  try {
    await navigator.clipboard.writeText(text);
    notices.say(`Copied ${shown}`);
  } catch {
    notices.say(copyOldWay(text) ? `Copied ${shown}` : "The browser did not allow copying");
  }
}

/** Without HTTPS, or away from localhost, there is no clipboard API. */
function copyOldWay(text: string): boolean {
  const field = document.createElement("textarea");
  field.value = text;
  field.style.position = "fixed";
  field.style.opacity = "0";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}
