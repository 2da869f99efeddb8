/** List of any length; only visible rows are in the document. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

export interface VirtualListProps {
  count: number;
  /** Height of every row in pixels, or an estimate until it is measured. */
  height: number;
  /** True if rows have different heights. */
  isMeasured?: boolean;
  keyOf(index: number): string;
  children(index: number): ComponentChildren;
  /** Scrolls along with new rows while the end is visible. */
  follow?: boolean;
  label: string;
  class?: string;
  role?: "list" | "log" | "table" | "rowgroup";
  /** Called when the first rows become visible. */
  onTop?(): void;
  /** Called when the last rows become visible. */
  onEnd?(): void;
  /** Key of a row to scroll to when it changes. */
  show?: string | null;
}

interface Anchor {
  key: string;
  /** Distance of the row from the upper edge. */
  below: number;
}

const OVERSCAN = 400;
const NEAR_END = 48;

export function VirtualList(props: VirtualListProps) {
  const { count, height, isMeasured = false, keyOf, follow = false } = props;
  const box = useRef<HTMLDivElement>(null);
  const heights = useRef(new Map<string, number>()).current;
  const anchor = useRef<Anchor | null>(null);
  const atEnd = useRef(follow);
  const shown = useRef<string | null>(null);
  const [viewport, setViewport] = useState({ top: 0, height: 800 });
  const [measureVersion, setMeasureVersion] = useState(0);

  const starts = useMemo(() => {
    const found = new Float64Array(count + 1);
    for (let index = 0; index < count; index += 1) {
      found[index + 1] = found[index]! + (isMeasured ? (heights.get(keyOf(index)) ?? height) : height);
    }
    return found;
  }, [count, height, isMeasured, measureVersion, isMeasured ? keyOf : null]);

  const first = Math.max(0, findRow(starts, viewport.top - OVERSCAN));
  const end = Math.min(count, findRow(starts, viewport.top + viewport.height + OVERSCAN) + 1);

  // Rows that grow or are added above do not move the visible rows.
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
      const anchored = anchor.current;
      for (let index = first; index < Math.min(count, end + 400); index += 1) {
        if (keyOf(index) === anchored.key) {
          top = starts[index]! - anchored.below;
          break;
        }
      }
    }
    if (Math.abs(top - element.scrollTop) >= 1) element.scrollTop = top;
  }, [starts, props.show]);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const boxObserver = new ResizeObserver(() => {
      setViewport((before) =>
        before.height === element.clientHeight ? before : { ...before, height: element.clientHeight },
      );
      if (follow && atEnd.current) element.scrollTop = element.scrollHeight;
    });
    boxObserver.observe(element);
    return () => boxObserver.disconnect();
  }, []);

  // One observer for all visible rows: a row that changes its height is measured again.
  const observer = useRef<ResizeObserver | null>(null);
  if (isMeasured && !observer.current) {
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
      if (different) setMeasureVersion((version) => version + 1);
    });
  }
  useLayoutEffect(() => () => observer.current?.disconnect(), []);

  const handleScroll = () => {
    const element = box.current;
    if (!element) return;
    const top = element.scrollTop;
    atEnd.current = element.scrollHeight - element.clientHeight - top < NEAR_END;
    const index = Math.min(Math.max(0, findRow(starts, top)), Math.max(0, count - 1));
    anchor.current = count ? { key: keyOf(index), below: starts[index]! - top } : null;
    if (top < OVERSCAN) props.onTop?.();
    if (element.scrollHeight - element.clientHeight - top < OVERSCAN) props.onEnd?.();
    setViewport((before) =>
      Math.abs(before.top - top) < OVERSCAN / 4 && before.height === element.clientHeight
        ? before
        : { top, height: element.clientHeight },
    );
  };

  const rows = [];
  for (let index = first; index < end; index += 1) {
    const key = keyOf(index);
    rows.push(
      <Row key={key} id={key} observer={isMeasured ? observer.current : null} height={isMeasured ? 0 : height}
        index={index} of={count} role={props.role ?? "list"}>
        {props.children(index)}
      </Row>,
    );
  }
  return (
    <div ref={box} class={`virtual-list ${props.class ?? ""}`} onScroll={handleScroll} tabIndex={0}
      role={props.role ?? "list"} aria-label={props.label}>
      <div class="virtual-list-content" role="presentation" style={{ height: `${starts[count]}px` }}>
        <div class="virtual-list-window" role="presentation" style={{ transform: `translateY(${starts[first] ?? 0}px)` }}>
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
    <div ref={element} data-key={id} class="virtual-list-row" role={table ? "row" : role === "list" ? "listitem" : undefined}
      aria-setsize={role === "list" ? of : undefined} aria-posinset={role === "list" ? index + 1 : undefined}
      aria-rowindex={table ? index + 1 : undefined} style={height ? { height: `${height}px` } : undefined}>
      {children}
    </div>
  );
}

/** Returns the row at an offset, or the last row if the offset is past the end. */
function findRow(starts: Float64Array, place: number): number {
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle + 1]! <= place) low = middle + 1;
    else high = middle;
  }
  return Math.min(low, Math.max(0, starts.length - 2));
}
