/** Where the boxes of a graph stand: in layers from left to right, each behind what it waits for. */

export interface Box {
  key: string;
  after: readonly string[];
}

export interface Measures {
  width: number;
  height: number;
  /** Between two layers, and between two boxes of one. */
  apart: number;
  below: number;
}

export type Point = readonly [x: number, y: number];

export interface Line {
  from: string;
  to: string;
  points: Point[];
}

export interface Layout {
  /** The upper left corner of each. */
  corners: Map<string, Point>;
  lines: Line[];
  width: number;
  height: number;
}

interface Spot {
  key: string;
  /** A line that passes a layer takes room there, like a low box. */
  passing: boolean;
  height: number;
  middle: number;
  before: Spot[];
  behind: Spot[];
}

const SWEEPS = 6;
const PASSING = 14;

export function laidOut(boxes: readonly Box[], measures: Measures): Layout {
  const edges = withoutCycles(boxes);
  const layers = layered(boxes, edges, measures);
  const chains = withPassing(edges, layers);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) sort(layers, sweep % 2 === 0);
  place(layers, measures);
  return drawn(layers, chains, measures);
}

type Edges = Map<string, string[]>;

/** What each waits for, of what is there; an edge that would close a circle is left out. */
function withoutCycles(boxes: readonly Box[]): Edges {
  const known = new Map(boxes.map((each) => [each.key, each]));
  const edges: Edges = new Map();
  const state = new Map<string, "open" | "done">();
  for (const start of boxes) {
    const path: { key: string; left: string[] }[] = [];
    const enter = (key: string) => {
      state.set(key, "open");
      edges.set(key, []);
      path.push({ key, left: [...new Set(known.get(key)!.after)].filter((each) => known.has(each) && each !== key) });
    };
    if (!state.has(start.key)) enter(start.key);
    while (path.length) {
      const here = path.at(-1)!;
      const next = here.left.shift();
      if (next === undefined) {
        state.set(here.key, "done");
        path.pop();
      } else if (state.get(next) !== "open") {
        edges.get(here.key)!.push(next);
        if (!state.has(next)) enter(next);
      }
    }
  }
  return edges;
}

function layered(boxes: readonly Box[], edges: Edges, measures: Measures): Spot[][] {
  const depth = new Map<string, number>();
  const waiting = new Map<string, number>();
  const behind: Edges = new Map();
  for (const { key } of boxes) {
    waiting.set(key, edges.get(key)!.length);
    for (const each of edges.get(key)!) behind.set(each, [...(behind.get(each) ?? []), key]);
  }
  const ready = boxes.filter(({ key }) => !waiting.get(key)).map(({ key }) => key);
  for (const key of ready) {
    depth.set(key, Math.max(-1, ...edges.get(key)!.map((each) => depth.get(each)!)) + 1);
    for (const each of behind.get(key) ?? []) {
      waiting.set(each, waiting.get(each)! - 1);
      if (!waiting.get(each)) ready.push(each);
    }
  }
  const layers: Spot[][] = [];
  for (const { key } of boxes) (layers[depth.get(key)!] ??= []).push(spot(key, false, measures.height));
  return layers;
}

const spot = (key: string, passing: boolean, height: number): Spot =>
  ({ key, passing, height, middle: 0, before: [], behind: [] });

/** The spots that each edge goes through, from what is waited for to what waits. */
function withPassing(edges: Edges, layers: Spot[][]): Spot[][] {
  const at = new Map<string, [Spot, number]>();
  layers.forEach((layer, depth) => layer.forEach((each) => at.set(each.key, [each, depth])));
  const chains: Spot[][] = [];
  for (const [to, froms] of edges) {
    for (const from of froms) {
      const [start, first] = at.get(from)!;
      const [end, last] = at.get(to)!;
      const chain = [start];
      for (let depth = first + 1; depth < last; depth += 1) {
        const passing = spot(`${from}\n${to}`, true, PASSING);
        layers[depth]!.push(passing);
        chain.push(passing);
      }
      chain.push(end);
      for (let index = 1; index < chain.length; index += 1) {
        chain[index]!.before.push(chain[index - 1]!);
        chain[index - 1]!.behind.push(chain[index]!);
      }
      chains.push(chain);
    }
  }
  return chains;
}

const mean = (values: readonly number[], other: number): number =>
  values.length ? values.reduce((sum, each) => sum + each, 0) / values.length : other;

/** Each layer by where its neighbours stand, so that few lines cross. */
function sort(layers: Spot[][], forward: boolean): void {
  for (const layer of forward ? layers : layers.toReversed()) {
    layer.forEach((each, index) => (each.middle = index));
  }
  for (const layer of forward ? layers : layers.toReversed()) {
    const wanted = new Map(
      layer.map((each) => [each, mean((forward ? each.before : each.behind).map((other) => other.middle), each.middle)]),
    );
    layer.sort((one, other) => wanted.get(one)! - wanted.get(other)!);
    layer.forEach((each, index) => (each.middle = index));
  }
}

function place(layers: Spot[][], measures: Measures): void {
  const apart = (one: Spot, other: Spot) => (one.height + other.height) / 2 + measures.below;
  for (const layer of layers) {
    layer.forEach((each, index) => (each.middle = index ? layer[index - 1]!.middle + apart(layer[index - 1]!, each) : 0));
  }
  for (let sweep = 0; sweep < SWEEPS * 2; sweep += 1) {
    for (const layer of sweep % 2 ? layers.toReversed() : layers) {
      const wanted = layer.map((each) =>
        mean([...each.before, ...each.behind].map((other) => other.middle), each.middle));
      const down = [...wanted];
      const up = [...wanted];
      for (let index = 1; index < layer.length; index += 1) {
        down[index] = Math.max(down[index]!, down[index - 1]! + apart(layer[index - 1]!, layer[index]!));
      }
      for (let index = layer.length - 2; index >= 0; index -= 1) {
        up[index] = Math.min(up[index]!, up[index + 1]! - apart(layer[index]!, layer[index + 1]!));
      }
      // Both keep the distances, so their middle does.
      layer.forEach((each, index) => (each.middle = (down[index]! + up[index]!) / 2));
    }
  }
}

function drawn(layers: Spot[][], chains: Spot[][], { width, height, apart }: Measures): Layout {
  const top = Math.min(0, ...layers.flat().map((each) => each.middle - each.height / 2));
  const bottom = Math.max(0, ...layers.flat().map((each) => each.middle + each.height / 2));
  const corners = new Map<string, Point>();
  const left = new Map<Spot, number>();
  layers.forEach((layer, depth) => {
    for (const each of layer) {
      left.set(each, depth * (width + apart));
      if (!each.passing) corners.set(each.key, [left.get(each)!, each.middle - height / 2 - top]);
    }
  });
  const lines = chains.map((chain) => {
    const points: Point[] = [];
    chain.forEach((each, index) => {
      const x = left.get(each)!;
      if (index > 0) points.push([x, each.middle - top]);
      if (index < chain.length - 1) points.push([x + width, each.middle - top]);
    });
    return { from: chain[0]!.key, to: chain.at(-1)!.key, points };
  });
  return { corners, lines, width: Math.max(0, layers.length * (width + apart) - apart), height: bottom - top };
}

/** A line through the points that leaves and enters each of them level. */
export function curve(points: readonly Point[]): string {
  let path = "";
  points.forEach(([x, y], index) => {
    const [beforeX, beforeY] = points[index - 1] ?? [x, y];
    const half = (beforeX + x) / 2;
    path += index ? `C${half},${beforeY} ${half},${y} ${x},${y}` : `M${x},${y}`;
  });
  return path;
}
