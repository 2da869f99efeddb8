/** Data sources of the view: a server, or the data inside an exported page. */

import type { WatchedRun } from "./store";
import type {
  Answer, Entry, MailDetails, MailRow, OpenQuestion, RunRow, RunSummary, StreamDelta, TaskDetails, TranscriptPage, ViewDelta,
} from "./types";

export type AgentAction = "interrupt" | "stop" | "kill" | "background" | "restart";

export interface AgentListener {
  onDelta(delta: StreamDelta): void;
  /** The transcript has more entries. */
  onEntryAdded(): void;
}

export interface Source {
  /** False for an exported page, which is read-only. */
  readonly canSteer: boolean;
  /** Location of the first page. */
  readonly start: string;
  /** Returns the latest runs first; with `before`, the runs that follow it in the list. */
  listRuns(before?: string): Promise<RunSummary[]>;
  /** Applies the deltas of a run until the returned function is called. */
  watchRun(session: string, watchedRun: WatchedRun): () => void;
  loadReplay(session: string): Promise<ViewDelta[]>;
  /** Returns the entries from number `after`, or the last ones for -1. `next` is the number that follows them. */
  loadTranscript(session: string, agent: string, after: number, limit?: number): Promise<TranscriptPage>;
  loadEntry(session: string, agent: string, n: number): Promise<Entry>;
  followAgent(session: string, agent: string, listener: AgentListener): () => void;
  /** Passes the list of all open questions whenever it changes; calls `onRunsChanged` when the list of runs may have changed. */
  followQuestions(onQuestions: (list: OpenQuestion[]) => void, onRunsChanged: () => void): () => void;
  answerQuestion(session: string, question: string, answer: Answer): Promise<unknown>;
  sendMessage(session: string, to: string, text: string): Promise<unknown>;
  controlAgent(session: string, action: AgentAction, agent: string): Promise<unknown>;
  setMode(session: string, mode: string): Promise<unknown>;
  loadTask(session: string, board: string, task: string): Promise<TaskDetails>;
  loadMail(session: string, message: MailRow): Promise<MailDetails>;
  addTask(session: string, task: Record<string, unknown>): Promise<unknown>;
  changeTask(session: string, board: string, task: string, change: Record<string, unknown>): Promise<unknown>;
}

/** A request that the server refused, with its message. */
export class RequestRefused extends Error {}

const RETRY = 2_000;
const REST = 10_000;

export class ServerSource implements Source {
  readonly canSteer = true;
  readonly start = "#/runs";

  listRuns(before = ""): Promise<RunSummary[]> {
    return fetchJson(`/api/runs?limit=200${before ? `&before=${encodePart(before)}` : ""}`);
  }

  watchRun(session: string, watchedRun: WatchedRun): () => void {
    return openStream(() => `${buildRunUrl(session)}/frames?since=${watchedRun.view.offset}`, {
      onMessage: (text) => {
        watchedRun.applyDelta(JSON.parse(text) as ViewDelta);
      },
      onDrop: (why) => watchedRun.markDisconnected(why),
      onlyWhenVisible: true,
    });
  }

  async loadReplay(session: string): Promise<ViewDelta[]> {
    return (await fetchJson<{ frames: ViewDelta[] }>(`${buildRunUrl(session)}/replay?frames=400`)).frames;
  }

  loadTranscript(session: string, agent: string, after: number, limit = 200): Promise<TranscriptPage> {
    return fetchJson(`${buildRunUrl(session)}/agents/${encodePart(agent)}/transcript?after=${after}&limit=${limit}`);
  }

  loadEntry(session: string, agent: string, n: number): Promise<Entry> {
    return fetchJson(`${buildRunUrl(session)}/agents/${encodePart(agent)}/transcript/${n}`);
  }

  followAgent(session: string, agent: string, listener: AgentListener): () => void {
    return openStream(() => `${buildRunUrl(session)}/agents/${encodePart(agent)}/live`, {
      onMessage: (text) => listener.onDelta(JSON.parse(text) as StreamDelta),
      onEntry: () => listener.onEntryAdded(),
      onOpen: () => listener.onEntryAdded(),
      onlyWhenVisible: true,
    });
  }

  followQuestions(onQuestions: (list: OpenQuestion[]) => void, onRunsChanged: () => void): () => void {
    return openStream(() => "/api/questions/stream", {
      onMessage: (text) => onQuestions(JSON.parse(text) as OpenQuestion[]),
      onRuns: onRunsChanged,
    });
  }

  answerQuestion(session: string, question: string, answer: Answer): Promise<unknown> {
    return fetchJson(`${buildRunUrl(session)}/questions/${encodePart(question)}`, "POST", answer);
  }

  sendMessage(session: string, to: string, text: string): Promise<unknown> {
    return fetchJson(`${buildRunUrl(session)}/send`, "POST", { to, text });
  }

  controlAgent(session: string, action: AgentAction, agent: string): Promise<unknown> {
    return fetchJson(`${buildRunUrl(session)}/${action}`, "POST", { agent });
  }

  setMode(session: string, mode: string): Promise<unknown> {
    return fetchJson(`${buildRunUrl(session)}/mode`, "POST", { mode });
  }

  loadTask(session: string, board: string, task: string): Promise<TaskDetails> {
    return fetchJson(`${buildRunUrl(session)}/tasks/${encodePart(board)}/${encodePart(task)}`);
  }

  loadMail(session: string, { team, to, id }: MailRow): Promise<MailDetails> {
    return fetchJson(`${buildRunUrl(session)}/letters/${encodePart(team)}/${encodePart(to)}/${encodePart(id)}`);
  }

  addTask(session: string, task: Record<string, unknown>): Promise<unknown> {
    return fetchJson(`${buildRunUrl(session)}/tasks`, "POST", task);
  }

  changeTask(session: string, board: string, task: string, change: Record<string, unknown>): Promise<unknown> {
    return fetchJson(`${buildRunUrl(session)}/tasks/${encodePart(board)}/${encodePart(task)}`, "PATCH", change);
  }
}

const encodePart = encodeURIComponent;
const buildRunUrl = (session: string): string => `/api/runs/${encodePart(session)}`;

async function fetchJson<Reply>(path: string, method = "GET", body?: unknown): Promise<Reply> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      credentials: "same-origin",
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
    });
  } catch {
    throw new RequestRefused("Cannot reach the server. Is `shoal web` still running?");
  }
  const reply = (await response.json().catch(() => null)) as { error?: string } | null;
  if (!response.ok) throw new RequestRefused(reply?.error || `The server answered ${response.status}.`);
  return reply as Reply;
}

interface StreamHandlers {
  onMessage(text: string): void;
  onEntry?(): void;
  onRuns?(): void;
  onOpen?(): void;
  onDrop?(why: string): void;
  /** Closes the stream in a hidden tab: a browser allows few connections to one server. */
  onlyWhenVisible?: boolean;
}

/** Opens an event stream. The browser resumes a broken one; a refused or closed one is opened again from the current offset. */
function openStream(address: () => string, handlers: StreamHandlers): () => void {
  let stream: EventSource | null = null;
  let timer = 0;
  const open = () => {
    clearTimeout(timer);
    stream?.close();
    const opened = (stream = new EventSource(address()));
    opened.onopen = () => handlers.onOpen?.();
    opened.onmessage = (event: MessageEvent<string>) => handlers.onMessage(event.data);
    opened.addEventListener("entry", () => handlers.onEntry?.());
    opened.addEventListener("runs", () => handlers.onRuns?.());
    opened.onerror = () => {
      if (opened !== stream) return;
      handlers.onDrop?.("");
      if (opened.readyState === EventSource.CLOSED) void reopen(opened);
    };
  };
  // The browser does not report why a stream was refused. A permanent refusal is not retried.
  const reopen = async (refused: EventSource) => {
    const why = await readRefusal(address());
    if (refused !== stream) return;
    if (why) handlers.onDrop?.(why);
    else timer = window.setTimeout(open, RETRY);
  };
  const close = () => {
    clearTimeout(timer);
    stream?.close();
    stream = null;
  };
  const handleVisibility = () => {
    clearTimeout(timer);
    if (document.visibilityState === "hidden") timer = window.setTimeout(close, REST);
    else if (!stream || stream.readyState === EventSource.CLOSED) open();
  };
  open();
  if (handlers.onlyWhenVisible) document.addEventListener("visibilitychange", handleVisibility);
  return () => {
    document.removeEventListener("visibilitychange", handleVisibility);
    close();
  };
}

/** Returns the server's reason for refusing a stream; an empty text if a retry may succeed. */
async function readRefusal(address: string): Promise<string> {
  const stop = new AbortController();
  try {
    const response = await fetch(address, { signal: stop.signal });
    if (response.ok || response.status >= 500) return "";
    return ((await response.json()) as { error?: string }).error ?? `The server answered ${response.status}.`;
  } catch {
    return "";
  } finally {
    stop.abort();
  }
}

/** Data inside a page written by `shoal export --html`. */
export interface ExportData {
  run: RunRow;
  frames: ViewDelta[];
  transcripts: Record<string, Entry[]>;
}

export class ExportSource implements Source {
  readonly canSteer = false;

  constructor(private readonly data: ExportData) {}

  get start(): string {
    return `#/run/${encodePart(this.data.run.session)}/replay`;
  }

  async listRuns(before = ""): Promise<RunSummary[]> {
    if (before) return [];
    const { run, frames } = this.data;
    let usd = 0;
    let tokens = 0;
    const agents = new Set<string>();
    for (const delta of frames) {
      for (const row of delta.agents ?? []) agents.add(row.id);
      for (const point of delta.spend ?? []) [usd, tokens] = [point.usd, point.tokens];
    }
    const { session, cwd, prompt, began, last, ended, teams } = run;
    return [
      { session, cwd, prompt, began, last, live: false, ended, agents: agents.size, usd, tokens, teams, questions: 0 },
    ];
  }

  watchRun(_session: string, watchedRun: WatchedRun): () => void {
    for (const delta of this.data.frames) watchedRun.view.apply({ ...delta, live: false });
    const { at, offset } = watchedRun.view;
    queueMicrotask(() => watchedRun.applyDelta({ ...EMPTY, at, offset, since: offset }));
    return () => undefined;
  }

  async loadReplay(): Promise<ViewDelta[]> {
    return this.data.frames;
  }

  async loadTranscript(_session: string, agent: string, after: number, limit = 200): Promise<TranscriptPage> {
    const all = this.data.transcripts[agent] ?? [];
    const total = (all.at(-1)?.n ?? -1) + 1;
    const start = after < 0 ? Math.max(0, total - limit) : after;
    const entries = all.filter((each) => each.n >= start && each.n < start + limit);
    return { entries, next: Math.min(total, start + limit), total };
  }

  async loadEntry(_session: string, agent: string, n: number): Promise<Entry> {
    const found = this.data.transcripts[agent]?.find((each) => each.n === n);
    if (!found) throw new RequestRefused("This entry is not in the export.");
    return found;
  }

  followAgent(): () => void {
    return () => undefined;
  }

  followQuestions(onQuestions: (list: OpenQuestion[]) => void): () => void {
    onQuestions([]);
    return () => undefined;
  }

  answerQuestion = refuseChange;
  sendMessage = refuseChange;
  controlAgent = refuseChange;
  setMode = refuseChange;
  loadTask = refuseChange;
  loadMail = refuseChange;
  addTask = refuseChange;
  changeTask = refuseChange;
}

const EMPTY: ViewDelta = {
  since: 0, offset: 0, at: 0, live: false, run: null, agents: [], tasks: [], letters: [], questions: [], costs: [],
  spend: [], notes: [], workflows: [], letters_in_all: 0, letters_unread: 0, questions_in_all: 0,
};

async function refuseChange(): Promise<never> {
  throw new RequestRefused("This is an export: it shows a run and cannot change it.");
}

/** Returns the export inside the page, or else the server of the page. */
export function createSource(): Source {
  const inside = document.getElementById("shoal-export");
  return inside?.textContent ? new ExportSource(JSON.parse(inside.textContent) as ExportData) : new ServerSource();
}
