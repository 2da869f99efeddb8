import type { ComponentChildren } from "preact";
export function Replay({ children }: { children: ComponentChildren }) {
  return <div class="page">{children}</div>;
}
