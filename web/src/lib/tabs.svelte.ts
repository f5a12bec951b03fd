import { href, type Room, router } from "./router.svelte";

/** The open one of a page's tabs. It is in the address, so that it can be sent to somebody and is still open after a reload; the first is where none is named. For use while a component is made. */
export function addressedTab<Name extends string>(tabs: readonly { name: Name }[], room: Room, name: () => string | null = () => null): { chosen: Name } {
  const first = tabs[0]!.name;
  const addressed = (): Name => tabs.find((one) => one.name === router.route.parameters.get("tab"))?.name ?? first;
  let chosen = $state<Name>(addressed());
  // A link or the browser's own buttons may change the address while the page is open.
  $effect(() => {
    chosen = addressed();
  });
  $effect(() => history.replaceState(null, "", href(room, name(), chosen === first ? undefined : { tab: chosen })));
  return {
    get chosen() {
      return chosen;
    },
    set chosen(tab: Name) {
      chosen = tab;
    },
  };
}
