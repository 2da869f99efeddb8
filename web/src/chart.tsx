/** Small SVG charts. */

import { useState } from "preact/hooks";
import { useFit } from "./components";
import { VirtualList } from "./virtual_list";

export interface Bar {
  key: string;
  label: string;
  /** Values in the order of the legend. */
  parts: number[];
  /** Class and style of its color mark. */
  tint?: { class: string; style?: Record<string, string> };
  href?: string;
}

const BAR = 26;
const MAX_BARS = 24;

/** Horizontal stacked bars. A long list scrolls. */
export function BarChart({ bars, legend, formatValue }: { bars: readonly Bar[]; legend: readonly string[]; formatValue(value: number): string }) {
  const most = Math.max(...bars.map(sumParts), 1e-9);
  return (
    <div class="bars" style={{ height: `${Math.min(bars.length, MAX_BARS) * BAR}px` }}>
      <VirtualList count={bars.length} height={BAR} keyOf={(index) => bars[index]!.key} label="Bars">
        {(index) => <BarRow bar={bars[index]!} legend={legend} formatValue={formatValue} most={most} />}
      </VirtualList>
    </div>
  );
}

export const sumParts = (bar: Bar): number => bar.parts.reduce((sum, part) => sum + part, 0);

function BarRow({ bar, legend, formatValue, most }: {
  bar: Bar;
  legend: readonly string[];
  formatValue(value: number): string;
  most: number;
}) {
  let start = 0;
  return (
    <div class={`bar-row ${bar.tint?.class ?? ""}`} style={bar.tint?.style}>
      <span class="bar-name cut" title={bar.label}>
        <i aria-hidden="true" />{bar.href ? <a href={bar.href}>{bar.label}</a> : bar.label}
      </span>
      <svg class="bar" role="img" width="100%" height="14" preserveAspectRatio="none" viewBox="0 0 1000 14"
        aria-label={`${bar.label}: ${formatValue(sumParts(bar))}`}>
        {bar.parts.map((part, index) => {
          const from = start;
          start += part;
          return (
            <rect key={index} class={`part part-${index}`} x={(from / most) * 1000} y="0" height="14"
              width={Math.max(0, (part / most) * 1000)}>
              <title>{`${legend[index]}: ${formatValue(part)}`}</title>
            </rect>
          );
        })}
      </svg>
      <span class="figures">{formatValue(sumParts(bar))}</span>
    </div>
  );
}

export function Legend({ names }: { names: readonly string[] }) {
  return (
    <ul class="legend">
      {names.map((name, index) => <li key={name}><i class={`part part-${index}`} aria-hidden="true" />{name}</li>)}
    </ul>
  );
}

export interface Point {
  at: number;
  value: number;
}

const HEIGHT = 190;
const LEFT = 64;
const RIGHT = 14;
const TOP = 14;
const BOTTOM = 24;

/** Line chart of spending over time. The limit is drawn if it is in range. */
export function LineChart({ points, limit, from, to: until, formatValue, time, label }: {
  points: readonly Point[];
  limit: number | null;
  from: number;
  to: number;
  formatValue(value: number): string;
  time(at: number): string;
  label: string;
}) {
  const [box, wide] = useFit((width) => Math.max(240, width), 640);
  const [over, setOver] = useState<Point | null>(null);
  const last = points.at(-1)?.value ?? 0;
  const to = Math.max(until, points.at(-1)?.at ?? 0);
  const most = roundUpScale(Math.max(last * 1.08, limit && limit <= last * 4 ? limit * 1.05 : 0, 1e-6));
  const x = (at: number) => LEFT + ((at - from) / Math.max(1, to - from)) * (wide - LEFT - RIGHT);
  const y = (value: number) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
  let path = `M${x(from).toFixed(1)} ${y(0).toFixed(1)}`;
  let before = 0;
  for (const point of points) {
    path += `L${x(point.at).toFixed(1)} ${y(before).toFixed(1)}L${x(point.at).toFixed(1)} ${y(point.value).toFixed(1)}`;
    before = point.value;
  }
  path += `L${x(to).toFixed(1)} ${y(before).toFixed(1)}`;
  const area = `${path}L${x(to).toFixed(1)} ${y(0).toFixed(1)}Z`;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => share * most);
  const showNearest = (event: PointerEvent) => {
    const rectangle = (event.currentTarget as Element).getBoundingClientRect();
    const at = from + ((event.clientX - rectangle.left - LEFT) / (wide - LEFT - RIGHT)) * (to - from);
    setOver(points.findLast((point) => point.at <= at) ?? null);
  };
  return (
    <div ref={box} class="line">
      <svg width={wide} height={HEIGHT} viewBox={`0 0 ${wide} ${HEIGHT}`} role="img" aria-label={label}
        onPointerMove={showNearest} onPointerLeave={() => setOver(null)}>
        {ticks.map((value) => (
          <g key={value}>
            <line class="grid" x1={LEFT} x2={wide - RIGHT} y1={y(value)} y2={y(value)} />
            <text x={LEFT - 8} y={y(value) + 4} text-anchor="end">{formatValue(value).replace(/(\.\d\d\d*?)0+$/, "$1")}</text>
          </g>
        ))}
        {[0, 0.5, 1].map((share) => (
          <text key={share} x={x(from + share * (to - from))} y={HEIGHT - 6}
            text-anchor={share === 0 ? "start" : share === 1 ? "end" : "middle"}>{time(from + share * (to - from))}</text>
        ))}
        <path class="area" d={area} />
        <path class="stroke" d={path} />
        {limit !== null && limit <= most && (
          <g class="limit">
            <line x1={LEFT} x2={wide - RIGHT} y1={y(limit)} y2={y(limit)} />
            <text x={wide - RIGHT} y={y(limit) - 5} text-anchor="end">budget {formatValue(limit)}</text>
          </g>
        )}
        {over && (
          <g class="over">
            <line x1={x(over.at)} x2={x(over.at)} y1={TOP} y2={HEIGHT - BOTTOM} />
            <circle cx={x(over.at)} cy={y(over.value)} r="3.500" />
            <text x={Math.min(x(over.at) + 8, wide - 150)} y={TOP + 10}>{`${time(over.at)}  ${formatValue(over.value)}`}</text>
          </g>
        )}
      </svg>
    </div>
  );
}

/** Rounds up to a number whose quarters are round too. */
function roundUpScale(value: number): number {
  const unit = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10]) if (step * unit >= value) return step * unit;
  return 10 * unit;
}
