/** The conversation of one agent: the part that is loaded, kept up with what it says. */

import { useEffect, useMemo } from "preact/hooks";
import { useRedraw, useSource } from "./context";
import { when } from "./format";
import type { Source } from "./data";
import type { Block, Entry } from "./types";

const PAGE = 200;

/** What is said right now and is in no entry yet. */
export interface Said {
  text: string;
  thinking: string;
  /** The tool that is being called, or what a running one last said. */
  tool: string;
}

const NOTHING: Said = { text: "", thinking: "", tool: "" };

export class Transcript {
  entries: Entry[] = [];
  loaded = false;
  problem = "";
  said: Said = NOTHING;
  /** Where the loaded part begins. */
  start = 0;
  /** Rows that a person opened or closed, by key; kept while they are out of sight. */
  readonly opened = new Map<string, boolean>();
  private next = -1;
  private busy = false;
  private again = false;
  private ended = false;

  constructor(
    private readonly source: Source,
    private readonly session: string,
    private readonly agent: string,
    private readonly changed: () => void,
  ) {}

  follow(): () => void {
    void this.grow();
    const end = this.source.hear(this.session, this.agent, {
      delta: ({ kind, text }) => {
        if (kind === "discarded") this.said = NOTHING;
        else if (kind === "text") this.said = { ...this.said, text: this.said.text + text };
        else if (kind === "thinking") this.said = { ...this.said, thinking: this.said.thinking + text };
        else this.said = { ...this.said, tool: kind === "tool_input" ? `calling ${text}` : text };
        this.changed();
      },
      grown: () => void this.grow(),
    });
    return () => {
      this.ended = true;
      end();
    };
  }

  /** Takes in what was written since; what comes meanwhile is asked for right after. */
  private async grow(): Promise<void> {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    const heard = this.said;
    try {
      do {
        this.again = false;
        const page = await this.source.transcript(this.session, this.agent, this.next, PAGE);
        if (this.ended) return;
        if (this.next < 0) this.start = Math.max(0, page.total - PAGE);
        if (page.entries.length && this.loaded) this.said = without(this.said, heard);
        this.put(page.entries);
        this.next = page.next;
        this.again ||= page.next < page.total;
      } while (this.again);
      this.problem = "";
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
    } finally {
      this.busy = false;
      this.loaded = true;
      if (!this.ended) this.changed();
    }
  }

  /** Takes in the part before the loaded one. */
  async older(): Promise<void> {
    if (this.busy || this.start === 0 || !this.loaded) return;
    this.busy = true;
    const from = Math.max(0, this.start - PAGE);
    try {
      const page = await this.source.transcript(this.session, this.agent, from, this.start - from);
      this.put(page.entries);
      this.start = from;
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
    } finally {
      this.busy = false;
      if (!this.ended) this.changed();
    }
    if (this.again) void this.grow();
  }

  /** Puts the whole entry in the place of the one that was cut. */
  async whole(n: number): Promise<void> {
    this.put([await this.source.entry(this.session, this.agent, n)]);
    this.changed();
  }

  private put(more: readonly Entry[]): void {
    if (!more.length) return;
    const byPlace = new Map(this.entries.map((entry) => [entry.n, entry]));
    for (const entry of more) byPlace.set(entry.n, entry);
    this.entries = [...byPlace.values()].sort((one, other) => one.n - other.n);
  }
}

/** What was heard since: what had been heard before is in the transcript now. */
function without(said: Said, before: Said): Said {
  const rest = (now: string, then: string) => (now.startsWith(then) ? now.slice(then.length) : now);
  return { text: rest(said.text, before.text), thinking: rest(said.thinking, before.thinking), tool: "" };
}

export function useTranscript(session: string, agent: string): Transcript {
  const source = useSource();
  const redraw = useRedraw();
  const transcript = useMemo(() => new Transcript(source, session, agent, redraw), [session, agent]);
  useEffect(() => transcript.follow(), [transcript]);
  return transcript;
}

/** A tool call's result, and the entry it is in. */
export interface Result {
  block: Block;
  n: number;
}

export interface Told {
  /** Entries that have something of their own to show. */
  rows: Entry[];
  results: ReadonlyMap<string, Result>;
  /** The calls whose results are shown with them. */
  calls: ReadonlySet<string>;
  /** How often each tool was called. */
  tools: [name: string, times: number][];
  /** The files that calls changed, by path. */
  files: [path: string, times: number][];
}

export type Only = "all" | "words" | "tools" | "changes";

/** The entries up to a moment; a result is shown with its call where that is there too. */
export function told(entries: readonly Entry[], only: Only, until: number): Told {
  const results = new Map<string, Result>();
  const calls = new Set<string>();
  const tools = new Map<string, number>();
  const files = new Map<string, number>();
  const past = until ? entries.filter((entry) => when(entry.at) <= until) : entries;
  for (const entry of past) {
    for (const block of entry.blocks) {
      if (block.type === "tool_result" && block.tool_use_id) results.set(block.tool_use_id, { block, n: entry.n });
      if (block.type !== "tool_use") continue;
      if (block.id) calls.add(block.id);
      tools.set(block.name ?? "", (tools.get(block.name ?? "") ?? 0) + 1);
      const path = block.diff ? pathIn(block.input) : "";
      if (path) files.set(path, (files.get(path) ?? 0) + 1);
    }
  }
  const most = (numbers: Map<string, number>) => [...numbers].sort((one, other) => other[1] - one[1]);
  const rows = past.filter((entry) => entry.blocks.some((block) => wanted(block, only, calls)));
  return { rows, results, calls, tools: most(tools), files: most(files) };
}

export function wanted(block: Block, only: Only, calls: ReadonlySet<string>): boolean {
  switch (block.type) {
    case "tool_result":
      return only !== "words" && only !== "changes" && !calls.has(block.tool_use_id ?? "");
    case "tool_use":
      return only === "changes" ? !!block.diff : only !== "words";
    case "thinking":
      return only === "all";
    default:
      return only === "all" || only === "words";
  }
}

function pathIn(input: unknown): string {
  const { file_path: path } = (input ?? {}) as { file_path?: unknown };
  return typeof path === "string" ? path : "";
}
