/** Drawer next to the page; on small screens it covers the page. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Drawer({ title, children, onClose }: { title: string; children: ComponentChildren; onClose(): void }) {
  const close = useRef(onClose);
  close.current = onClose;
  useEffect(() => {
    const handleKey = (event: KeyboardEvent) => {
      if (event.key === "Escape") close.current();
    };
    addEventListener("keydown", handleKey);
    return () => removeEventListener("keydown", handleKey);
  }, []);
  return (
    <aside class="drawer" aria-label={title}>
      <header>
        <h3>{title}</h3>
        <button type="button" aria-label="Close" onClick={onClose}>×</button>
      </header>
      <div class="drawer-body">{children}</div>
    </aside>
  );
}
