/** Conversation of one agent: the loaded entries and the text that is streamed. */

import { useEffect, useMemo } from "preact/hooks";
import { useRedraw, useSource } from "./context";
import { parseTime } from "./format";
import type { Source } from "./data_source";
import type { Block, Entry } from "./types";

const PAGE = 200;

/** Streamed text that is not in an entry yet. */
export interface StreamedText {
  text: string;
  thinking: string;
  /** Tool that is called, or the latest output of a running tool. */
  tool: string;
}

const NO_TEXT: StreamedText = { text: "", thinking: "", tool: "" };

export class Transcript {
  entries: Entry[] = [];
  isLoaded = false;
  problem = "";
  streamed: StreamedText = NO_TEXT;
  /** Number of the first loaded entry. */
  start = 0;
  /** Rows that a person opened or closed, by key; kept while they are not visible. */
  readonly opened = new Map<string, boolean>();
  private next = -1;
  private isBusy = false;
  private hasMore = false;
  private isStopped = false;

  constructor(
    private readonly source: Source,
    private readonly session: string,
    private readonly agent: string,
    private readonly onChange: () => void,
  ) {}

  follow(): () => void {
    void this.loadNew();
    const stop = this.source.followAgent(this.session, this.agent, {
      onDelta: ({ kind, text }) => {
        if (kind === "discarded") this.streamed = NO_TEXT;
        else if (kind === "text") this.streamed = { ...this.streamed, text: this.streamed.text + text };
        else if (kind === "thinking") this.streamed = { ...this.streamed, thinking: this.streamed.thinking + text };
        else this.streamed = { ...this.streamed, tool: kind === "tool_input" ? `calling ${text}` : text };
        this.onChange();
      },
      onEntryAdded: () => void this.loadNew(),
    });
    return () => {
      this.isStopped = true;
      stop();
    };
  }

  /** Loads new entries; a call during a load makes it load again. */
  private async loadNew(): Promise<void> {
    if (this.isBusy) {
      this.hasMore = true;
      return;
    }
    this.isBusy = true;
    const before = this.streamed;
    try {
      do {
        this.hasMore = false;
        const page = await this.source.loadTranscript(this.session, this.agent, this.next, PAGE);
        if (this.isStopped) return;
        if (this.next < 0) this.start = Math.max(0, page.total - PAGE);
        if (page.entries.length && this.isLoaded) this.streamed = dropSavedText(this.streamed, before);
        this.mergeEntries(page.entries);
        this.next = page.next;
        this.hasMore ||= page.next < page.total;
      } while (this.hasMore);
      this.problem = "";
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
    } finally {
      this.isBusy = false;
      this.isLoaded = true;
      if (!this.isStopped) this.onChange();
    }
  }

  /** Loads the entries before the loaded ones. */
  async loadOlder(): Promise<void> {
    if (this.isBusy || this.start === 0 || !this.isLoaded) return;
    this.isBusy = true;
    const from = Math.max(0, this.start - PAGE);
    try {
      const page = await this.source.loadTranscript(this.session, this.agent, from, this.start - from);
      this.mergeEntries(page.entries);
      this.start = from;
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
    } finally {
      this.isBusy = false;
      if (!this.isStopped) this.onChange();
    }
    if (this.hasMore) void this.loadNew();
  }

  /** Replaces a shortened entry with the whole one. */
  async loadWholeEntry(n: number): Promise<void> {
    this.mergeEntries([await this.source.loadEntry(this.session, this.agent, n)]);
    this.onChange();
  }

  private mergeEntries(more: readonly Entry[]): void {
    if (!more.length) return;
    const byPlace = new Map(this.entries.map((entry) => [entry.n, entry]));
    for (const entry of more) byPlace.set(entry.n, entry);
    this.entries = [...byPlace.values()].sort((one, other) => one.n - other.n);
  }
}

/** Removes the text that is in the transcript now. */
function dropSavedText(streamed: StreamedText, before: StreamedText): StreamedText {
  const rest = (now: string, then: string) => (now.startsWith(then) ? now.slice(then.length) : now);
  return { text: rest(streamed.text, before.text), thinking: rest(streamed.thinking, before.thinking), tool: "" };
}

export function useTranscript(session: string, agent: string): Transcript {
  const source = useSource();
  const redraw = useRedraw();
  const transcript = useMemo(() => new Transcript(source, session, agent, redraw), [session, agent]);
  useEffect(() => transcript.follow(), [transcript]);
  return transcript;
}

/** Result of a tool call and the number of its entry. */
export interface Result {
  block: Block;
  n: number;
}

export interface Conversation {
  /** Entries that are shown as rows. */
  rows: Entry[];
  results: ReadonlyMap<string, Result>;
  /** Calls that are shown together with their results. */
  calls: ReadonlySet<string>;
  /** Number of calls of each tool. */
  tools: [name: string, times: number][];
  /** Number of changes of each file, by path. */
  files: [path: string, times: number][];
}

export type EntryFilter = "all" | "text" | "tools" | "changes";

/** Builds the rows up to a moment; a result is shown with its call if the call is loaded. */
export function buildConversation(entries: readonly Entry[], filter: EntryFilter, until: number): Conversation {
  const results = new Map<string, Result>();
  const calls = new Set<string>();
  const tools = new Map<string, number>();
  const files = new Map<string, number>();
  const past = until ? entries.filter((entry) => parseTime(entry.at) <= until) : entries;
  for (const entry of past) {
    for (const block of entry.blocks) {
      if (block.type === "tool_result" && block.tool_use_id) results.set(block.tool_use_id, { block, n: entry.n });
      if (block.type !== "tool_use") continue;
      if (block.id) calls.add(block.id);
      tools.set(block.name ?? "", (tools.get(block.name ?? "") ?? 0) + 1);
      const path = block.diff ? getFilePath(block.input) : "";
      if (path) files.set(path, (files.get(path) ?? 0) + 1);
    }
  }
  const sortByCount = (numbers: Map<string, number>) => [...numbers].sort((one, other) => other[1] - one[1]);
  const rows = past.filter((entry) => entry.blocks.some((block) => isBlockShown(block, filter, calls)));
  return { rows, results, calls, tools: sortByCount(tools), files: sortByCount(files) };
}

export function isBlockShown(block: Block, filter: EntryFilter, calls: ReadonlySet<string>): boolean {
  switch (block.type) {
    case "tool_result":
      return filter !== "text" && filter !== "changes" && !calls.has(block.tool_use_id ?? "");
    case "tool_use":
      return filter === "changes" ? !!block.diff : filter !== "text";
    case "thinking":
      return filter === "all";
    default:
      return filter === "all" || filter === "text";
  }
}

function getFilePath(input: unknown): string {
  const { file_path: path } = (input ?? {}) as { file_path?: unknown };
  return typeof path === "string" ? path : "";
}
