/** Small drawings of figures, made of SVG. */

import { useState } from "preact/hooks";
import { useFit } from "./bits";
import { Windowed } from "./windowed";

export interface Bar {
  key: string;
  label: string;
  /** In the order of the legend. */
  parts: number[];
  /** A class and a property for its mark. */
  look?: { class: string; style?: Record<string, string> };
  href?: string;
}

const BAR = 26;
const MOST_BARS = 24;

/** Bars from the left, each made of parts. A long list scrolls by itself. */
export function Bars({ bars, legend, words }: { bars: readonly Bar[]; legend: readonly string[]; words(value: number): string }) {
  const most = Math.max(...bars.map(size), 1e-9);
  return (
    <div class="bars" style={{ height: `${Math.min(bars.length, MOST_BARS) * BAR}px` }}>
      <Windowed count={bars.length} height={BAR} keyOf={(index) => bars[index]!.key} label="Bars">
        {(index) => <BarRow bar={bars[index]!} legend={legend} words={words} most={most} />}
      </Windowed>
    </div>
  );
}

export const size = (bar: Bar): number => bar.parts.reduce((sum, part) => sum + part, 0);

function BarRow({ bar, legend, words, most }: {
  bar: Bar;
  legend: readonly string[];
  words(value: number): string;
  most: number;
}) {
  let start = 0;
  return (
    <div class={`bar-row ${bar.look?.class ?? ""}`} style={bar.look?.style}>
      <span class="bar-name cut" title={bar.label}>
        <i aria-hidden="true" />{bar.href ? <a href={bar.href}>{bar.label}</a> : bar.label}
      </span>
      <svg class="bar" role="img" width="100%" height="14" preserveAspectRatio="none" viewBox="0 0 1000 14"
        aria-label={`${bar.label}: ${words(size(bar))}`}>
        {bar.parts.map((part, index) => {
          const from = start;
          start += part;
          return (
            <rect key={index} class={`part part-${index}`} x={(from / most) * 1000} y="0" height="14"
              width={Math.max(0, (part / most) * 1000)}>
              <title>{`${legend[index]}: ${words(part)}`}</title>
            </rect>
          );
        })}
      </svg>
      <span class="figures">{words(size(bar))}</span>
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

/** What was spent as time went on, with the limit where it is near enough to see. */
export function Line({ points, limit, from, to: until, words, time, label }: {
  points: readonly Point[];
  limit: number | null;
  from: number;
  to: number;
  words(value: number): string;
  time(at: number): string;
  label: string;
}) {
  const [box, wide] = useFit((width) => Math.max(240, width), 640);
  const [over, setOver] = useState<Point | null>(null);
  const last = points.at(-1)?.value ?? 0;
  const to = Math.max(until, points.at(-1)?.at ?? 0);
  const most = nice(Math.max(last * 1.08, limit && limit <= last * 4 ? limit * 1.05 : 0, 1e-6));
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
  const near = (event: PointerEvent) => {
    const rectangle = (event.currentTarget as Element).getBoundingClientRect();
    const at = from + ((event.clientX - rectangle.left - LEFT) / (wide - LEFT - RIGHT)) * (to - from);
    setOver(points.findLast((point) => point.at <= at) ?? null);
  };
  return (
    <div ref={box} class="line">
      <svg width={wide} height={HEIGHT} viewBox={`0 0 ${wide} ${HEIGHT}`} role="img" aria-label={label}
        onPointerMove={near} onPointerLeave={() => setOver(null)}>
        {ticks.map((value) => (
          <g key={value}>
            <line class="grid" x1={LEFT} x2={wide - RIGHT} y1={y(value)} y2={y(value)} />
            <text x={LEFT - 8} y={y(value) + 4} text-anchor="end">{words(value).replace(/(\.\d\d\d*?)0+$/, "$1")}</text>
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
            <text x={wide - RIGHT} y={y(limit) - 5} text-anchor="end">budget {words(limit)}</text>
          </g>
        )}
        {over && (
          <g class="over">
            <line x1={x(over.at)} x2={x(over.at)} y1={TOP} y2={HEIGHT - BOTTOM} />
            <circle cx={x(over.at)} cy={y(over.value)} r="3.500" />
            <text x={Math.min(x(over.at) + 8, wide - 150)} y={TOP + 10}>{`${time(over.at)}  ${words(over.value)}`}</text>
          </g>
        )}
      </svg>
    </div>
  );
}

/** The next round number whose quarters are round too. */
function nice(value: number): number {
  const unit = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10]) if (step * unit >= value) return step * unit;
  return 10 * unit;
}
