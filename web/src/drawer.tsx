/** A drawer beside the page, or over it where the screen is small. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Drawer({ title, children, onClose }: { title: string; children: ComponentChildren; onClose(): void }) {
  const close = useRef(onClose);
  close.current = onClose;
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.key === "Escape") close.current();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  return (
    <aside class="drawer" aria-label={title}>
      <header>
        <h3>{title}</h3>
        <button type="button" aria-label="Close" onClick={onClose}>×</button>
      </header>
      <div class="drawer-inside">{children}</div>
    </aside>
  );
}
