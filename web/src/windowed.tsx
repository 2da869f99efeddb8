/** A list of any length of which only the part in sight is in the document. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

export interface WindowedProps {
  count: number;
  /** The height of every row in pixels, or what to take it for until it is measured. */
  height: number;
  /** Rows have heights of their own. */
  measured?: boolean;
  keyOf(index: number): string;
  children(index: number): ComponentChildren;
  /** Stays at the end while the end is in sight. */
  follow?: boolean;
  label: string;
  class?: string;
  role?: "list" | "log" | "table" | "rowgroup";
  /** Told when the first rows come into sight. */
  onTop?(): void;
  /** Told when the last rows come into sight. */
  onEnd?(): void;
  /** Brings a row into sight whenever it changes. */
  show?: string | null;
}

interface Anchor {
  key: string;
  /** How far below the upper edge the row begins. */
  below: number;
}

const BEYOND = 400;
const NEAR_END = 48;

export function Windowed(props: WindowedProps) {
  const { count, height, measured = false, keyOf, follow = false } = props;
  const box = useRef<HTMLDivElement>(null);
  const heights = useRef(new Map<string, number>()).current;
  const anchor = useRef<Anchor | null>(null);
  const atEnd = useRef(follow);
  const shown = useRef<string | null>(null);
  const [place, setPlace] = useState({ top: 0, view: 800 });
  const [measuredAt, setMeasured] = useState(0);

  const starts = useMemo(() => {
    const found = new Float64Array(count + 1);
    for (let index = 0; index < count; index += 1) {
      found[index + 1] = found[index]! + (measured ? (heights.get(keyOf(index)) ?? height) : height);
    }
    return found;
  }, [count, height, measured, measuredAt, measured ? keyOf : null]);

  const first = Math.max(0, rowAt(starts, place.top - BEYOND));
  const end = Math.min(count, rowAt(starts, place.top + place.view + BEYOND) + 1);

  // Rows that grow or come in above leave what is in sight where it is.
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    let top = element.scrollTop;
    if (props.show && props.show !== shown.current) {
      shown.current = props.show;
      for (let index = 0; index < count; index += 1) {
        if (keyOf(index) !== props.show) continue;
        top = Math.max(0, starts[index]! - element.clientHeight / 3);
        atEnd.current = false;
      }
    } else if (follow && atEnd.current) {
      top = element.scrollHeight - element.clientHeight;
    } else if (anchor.current) {
      const kept = anchor.current;
      for (let index = first; index < Math.min(count, end + 400); index += 1) {
        if (keyOf(index) === kept.key) {
          top = starts[index]! - kept.below;
          break;
        }
      }
    }
    if (Math.abs(top - element.scrollTop) >= 1) element.scrollTop = top;
  }, [starts, props.show]);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const sized = new ResizeObserver(() => {
      setPlace((before) =>
        before.view === element.clientHeight ? before : { ...before, view: element.clientHeight },
      );
      if (follow && atEnd.current) element.scrollTop = element.scrollHeight;
    });
    sized.observe(element);
    return () => sized.disconnect();
  }, []);

  // One observer for all rows in sight: a row that changes its height is measured again.
  const observer = useRef<ResizeObserver | null>(null);
  if (measured && !observer.current) {
    observer.current = new ResizeObserver((changes) => {
      let different = false;
      for (const change of changes) {
        const key = (change.target as HTMLElement).dataset.key!;
        const now = change.target.getBoundingClientRect().height;
        if (now && heights.get(key) !== now) {
          heights.set(key, now);
          different = true;
        }
      }
      if (different) setMeasured((drawn) => drawn + 1);
    });
  }
  useLayoutEffect(() => () => observer.current?.disconnect(), []);

  const scrolled = () => {
    const element = box.current;
    if (!element) return;
    const top = element.scrollTop;
    atEnd.current = element.scrollHeight - element.clientHeight - top < NEAR_END;
    const index = Math.min(Math.max(0, rowAt(starts, top)), Math.max(0, count - 1));
    anchor.current = count ? { key: keyOf(index), below: starts[index]! - top } : null;
    if (top < BEYOND) props.onTop?.();
    if (element.scrollHeight - element.clientHeight - top < BEYOND) props.onEnd?.();
    setPlace((before) =>
      Math.abs(before.top - top) < BEYOND / 4 && before.view === element.clientHeight
        ? before
        : { top, view: element.clientHeight },
    );
  };

  const rows = [];
  for (let index = first; index < end; index += 1) {
    const key = keyOf(index);
    rows.push(
      <Row key={key} id={key} observer={measured ? observer.current : null} height={measured ? 0 : height}
        index={index} of={count} role={props.role ?? "list"}>
        {props.children(index)}
      </Row>,
    );
  }
  return (
    <div ref={box} class={`windowed ${props.class ?? ""}`} onScroll={scrolled} tabIndex={0}
      role={props.role ?? "list"} aria-label={props.label}>
      <div class="windowed-all" role="presentation" style={{ height: `${starts[count]}px` }}>
        <div class="windowed-part" role="presentation" style={{ transform: `translateY(${starts[first] ?? 0}px)` }}>
          {rows}
        </div>
      </div>
    </div>
  );
}

interface RowProps {
  id: string;
  observer: ResizeObserver | null;
  height: number;
  index: number;
  of: number;
  role: string;
  children: ComponentChildren;
}

function Row({ id, observer, height, index, of, role, children }: RowProps) {
  const element = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const row = element.current;
    if (!row || !observer) return;
    observer.observe(row);
    return () => observer.unobserve(row);
  }, [observer]);
  const table = role === "table" || role === "rowgroup";
  return (
    <div ref={element} data-key={id} class="windowed-row" role={table ? "row" : role === "list" ? "listitem" : undefined}
      aria-setsize={role === "list" ? of : undefined} aria-posinset={role === "list" ? index + 1 : undefined}
      aria-rowindex={table ? index + 1 : undefined} style={height ? { height: `${height}px` } : undefined}>
      {children}
    </div>
  );
}

/** The row that lies at a place; the last one, behind the end. */
function rowAt(starts: Float64Array, place: number): number {
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle + 1]! <= place) low = middle + 1;
    else high = middle;
  }
  return Math.min(low, Math.max(0, starts.length - 2));
}
