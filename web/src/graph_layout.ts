/** Layout of a graph in layers from left to right; each node is to the right of its blockers. */

export interface GraphNode {
  key: string;
  after: readonly string[];
}

export interface LayoutSizes {
  width: number;
  height: number;
  /** Gap between two layers, and between two nodes of one layer. */
  columnGap: number;
  rowGap: number;
}

export type Point = readonly [x: number, y: number];

export interface GraphEdge {
  from: string;
  to: string;
  points: Point[];
}

export interface Layout {
  /** Upper left corner of each node. */
  corners: Map<string, Point>;
  lines: GraphEdge[];
  width: number;
  height: number;
}

interface LayoutSlot {
  key: string;
  /** True for an edge that passes a layer; it takes space there like a low node. */
  isEdge: boolean;
  height: number;
  middle: number;
  before: LayoutSlot[];
  behind: LayoutSlot[];
}

const SWEEPS = 6;
const EDGE_HEIGHT = 14;

export function layOutGraph(nodes: readonly GraphNode[], sizes: LayoutSizes): Layout {
  const edges = removeCycles(nodes);
  const layers = assignLayers(nodes, edges, sizes);
  const chains = addEdgeSlots(edges, layers);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) sortLayers(layers, sweep % 2 === 0);
  placeSlots(layers, sizes);
  return buildLayout(layers, chains, sizes);
}

type Edges = Map<string, string[]>;

/** Returns the known blockers of each node, without edges that close a cycle. */
function removeCycles(nodes: readonly GraphNode[]): Edges {
  const known = new Map(nodes.map((each) => [each.key, each]));
  const edges: Edges = new Map();
  const state = new Map<string, "open" | "done">();
  for (const start of nodes) {
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

function assignLayers(nodes: readonly GraphNode[], edges: Edges, sizes: LayoutSizes): LayoutSlot[][] {
  const depth = new Map<string, number>();
  const waiting = new Map<string, number>();
  const behind: Edges = new Map();
  for (const { key } of nodes) {
    waiting.set(key, edges.get(key)!.length);
    for (const each of edges.get(key)!) behind.set(each, [...(behind.get(each) ?? []), key]);
  }
  const ready = nodes.filter(({ key }) => !waiting.get(key)).map(({ key }) => key);
  for (const key of ready) {
    depth.set(key, Math.max(-1, ...edges.get(key)!.map((each) => depth.get(each)!)) + 1);
    for (const each of behind.get(key) ?? []) {
      waiting.set(each, waiting.get(each)! - 1);
      if (!waiting.get(each)) ready.push(each);
    }
  }
  const layers: LayoutSlot[][] = [];
  for (const { key } of nodes) (layers[depth.get(key)!] ??= []).push(makeSlot(key, false, sizes.height));
  return layers;
}

const makeSlot = (key: string, isEdge: boolean, height: number): LayoutSlot =>
  ({ key, isEdge, height, middle: 0, before: [], behind: [] });

/** Returns the slots that each edge passes, from blocker to blocked node. */
function addEdgeSlots(edges: Edges, layers: LayoutSlot[][]): LayoutSlot[][] {
  const at = new Map<string, [LayoutSlot, number]>();
  layers.forEach((layer, depth) => layer.forEach((each) => at.set(each.key, [each, depth])));
  const chains: LayoutSlot[][] = [];
  for (const [to, froms] of edges) {
    for (const from of froms) {
      const [start, first] = at.get(from)!;
      const [end, last] = at.get(to)!;
      const chain = [start];
      for (let depth = first + 1; depth < last; depth += 1) {
        const edgeSlot = makeSlot(`${from}\n${to}`, true, EDGE_HEIGHT);
        layers[depth]!.push(edgeSlot);
        chain.push(edgeSlot);
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

const computeMean = (values: readonly number[], other: number): number =>
  values.length ? values.reduce((sum, each) => sum + each, 0) / values.length : other;

/** Sorts each layer by the positions of its neighbors, to reduce crossings. */
function sortLayers(layers: LayoutSlot[][], forward: boolean): void {
  for (const layer of forward ? layers : layers.toReversed()) {
    layer.forEach((each, index) => (each.middle = index));
  }
  for (const layer of forward ? layers : layers.toReversed()) {
    const targets = new Map(
      layer.map((each) => [each, computeMean((forward ? each.before : each.behind).map((other) => other.middle), each.middle)]),
    );
    layer.sort((one, other) => targets.get(one)! - targets.get(other)!);
    layer.forEach((each, index) => (each.middle = index));
  }
}

function placeSlots(layers: LayoutSlot[][], sizes: LayoutSizes): void {
  const distance = (one: LayoutSlot, other: LayoutSlot) => (one.height + other.height) / 2 + sizes.rowGap;
  for (const layer of layers) {
    layer.forEach((each, index) => (each.middle = index ? layer[index - 1]!.middle + distance(layer[index - 1]!, each) : 0));
  }
  for (let sweep = 0; sweep < SWEEPS * 2; sweep += 1) {
    for (const layer of sweep % 2 ? layers.toReversed() : layers) {
      const targets = layer.map((each) =>
        computeMean([...each.before, ...each.behind].map((other) => other.middle), each.middle));
      const down = [...targets];
      const up = [...targets];
      for (let index = 1; index < layer.length; index += 1) {
        down[index] = Math.max(down[index]!, down[index - 1]! + distance(layer[index - 1]!, layer[index]!));
      }
      for (let index = layer.length - 2; index >= 0; index -= 1) {
        up[index] = Math.min(up[index]!, up[index + 1]! - distance(layer[index]!, layer[index + 1]!));
      }
      // Both keep the minimum distances, so their mean does too.
      layer.forEach((each, index) => (each.middle = (down[index]! + up[index]!) / 2));
    }
  }
}

function buildLayout(layers: LayoutSlot[][], chains: LayoutSlot[][], { width, height, columnGap }: LayoutSizes): Layout {
  const top = Math.min(0, ...layers.flat().map((each) => each.middle - each.height / 2));
  const bottom = Math.max(0, ...layers.flat().map((each) => each.middle + each.height / 2));
  const corners = new Map<string, Point>();
  const left = new Map<LayoutSlot, number>();
  layers.forEach((layer, depth) => {
    for (const each of layer) {
      left.set(each, depth * (width + columnGap));
      if (!each.isEdge) corners.set(each.key, [left.get(each)!, each.middle - height / 2 - top]);
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
  return { corners, lines, width: Math.max(0, layers.length * (width + columnGap) - columnGap), height: bottom - top };
}

/** Builds a path through the points that is horizontal at each of them. */
export function buildCurve(points: readonly Point[]): string {
  let path = "";
  points.forEach(([x, y], index) => {
    const [beforeX, beforeY] = points[index - 1] ?? [x, y];
    const half = (beforeX + x) / 2;
    path += index ? `C${half},${beforeY} ${half},${y} ${x},${y}` : `M${x},${y}`;
  });
  return path;
}
