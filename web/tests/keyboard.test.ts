import { expect, it } from "vitest";
import { listen } from "../src/lib/keyboard";

it("leaves Escape to an open dialog, which the browser then closes", () => {
  const target = new EventTarget();
  const press = (key: string): Event => {
    const event = Object.assign(new Event("keydown", { cancelable: true }), { key });
    target.dispatchEvent(event);
    return event;
  };
  const pressed: string[] = [];
  let open = false;
  const done = listen({ Escape: () => pressed.push("Escape"), "?": () => pressed.push("?") }, target, Date.now, () => open);
  expect(press("Escape").defaultPrevented).toBe(true);
  open = true;
  expect(press("Escape").defaultPrevented).toBe(false);
  press("?");
  expect(pressed).toEqual(["Escape", "?"]);
  done();
});
