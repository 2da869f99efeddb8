/** Where everything shown comes from: a server, or the data inside an exported page. */

import type { Watched } from "./store";
import type {
  Answer, Delta, Entry, Frame, LetterRow, OpenQuestion, RunLine, RunRow, TranscriptPage, WholeLetter, WholeTask,
} from "./types";

export type Order = "interrupt" | "stop" | "kill" | "background";

export interface Listener {
  delta(delta: Delta): void;
  /** The transcript has more entries. */
  grown(): void;
}

export interface Source {
  /** Whether somebody can be told something: an exported page only shows. */
  readonly steers: boolean;
  /** Where the view begins. */
  readonly start: string;
  /** The latest first; those behind the run `before`, where it is named. */
  runs(before?: string): Promise<RunLine[]>;
  /** Keeps it up with its run until the returned function is called. */
  watch(session: string, watched: Watched): () => void;
  replay(session: string): Promise<Frame[]>;
  /** The entries from the place `after` on; the last ones for -1. `next` is the place behind them. */
  transcript(session: string, agent: string, after: number, limit?: number): Promise<TranscriptPage>;
  entry(session: string, agent: string, n: number): Promise<Entry>;
  hear(session: string, agent: string, listener: Listener): () => void;
  /** The open questions of all runs, whole, whenever they change; `stirred` when the list of runs may be another. */
  questions(told: (list: OpenQuestion[]) => void, stirred: () => void): () => void;
  answer(session: string, question: string, answer: Answer): Promise<unknown>;
  send(session: string, to: string, text: string): Promise<unknown>;
  order(session: string, order: Order, agent: string): Promise<unknown>;
  setMode(session: string, mode: string): Promise<unknown>;
  task(session: string, board: string, task: string): Promise<WholeTask>;
  letter(session: string, letter: LetterRow): Promise<WholeLetter>;
  addTask(session: string, task: Record<string, unknown>): Promise<unknown>;
  changeTask(session: string, board: string, task: string, change: Record<string, unknown>): Promise<unknown>;
}

/** What the server said no to, in its words. */
export class Refused extends Error {}

const RETRY = 2_000;
const REST = 10_000;

export class ServerSource implements Source {
  readonly steers = true;
  readonly start = "#/runs";

  runs(before = ""): Promise<RunLine[]> {
    return fetched(`/api/runs?limit=200${before ? `&before=${part(before)}` : ""}`);
  }

  watch(session: string, watched: Watched): () => void {
    return streamed(() => `${run(session)}/frames?since=${watched.state.offset}`, {
      message: (text) => {
        watched.take(JSON.parse(text) as Frame);
      },
      dropped: (why) => watched.dropped(why),
      onlyWhenSeen: true,
    });
  }

  async replay(session: string): Promise<Frame[]> {
    return (await fetched<{ frames: Frame[] }>(`${run(session)}/replay?frames=400`)).frames;
  }

  transcript(session: string, agent: string, after: number, limit = 200): Promise<TranscriptPage> {
    return fetched(`${run(session)}/agents/${part(agent)}/transcript?after=${after}&limit=${limit}`);
  }

  entry(session: string, agent: string, n: number): Promise<Entry> {
    return fetched(`${run(session)}/agents/${part(agent)}/transcript/${n}`);
  }

  hear(session: string, agent: string, listener: Listener): () => void {
    return streamed(() => `${run(session)}/agents/${part(agent)}/live`, {
      message: (text) => listener.delta(JSON.parse(text) as Delta),
      entry: () => listener.grown(),
      opened: () => listener.grown(),
      onlyWhenSeen: true,
    });
  }

  questions(told: (list: OpenQuestion[]) => void, stirred: () => void): () => void {
    return streamed(() => "/api/questions/stream", {
      message: (text) => told(JSON.parse(text) as OpenQuestion[]),
      runs: stirred,
    });
  }

  answer(session: string, question: string, answer: Answer): Promise<unknown> {
    return fetched(`${run(session)}/questions/${part(question)}`, "POST", answer);
  }

  send(session: string, to: string, text: string): Promise<unknown> {
    return fetched(`${run(session)}/send`, "POST", { to, text });
  }

  order(session: string, order: Order, agent: string): Promise<unknown> {
    return fetched(`${run(session)}/${order}`, "POST", { agent });
  }

  setMode(session: string, mode: string): Promise<unknown> {
    return fetched(`${run(session)}/mode`, "POST", { mode });
  }

  task(session: string, board: string, task: string): Promise<WholeTask> {
    return fetched(`${run(session)}/tasks/${part(board)}/${part(task)}`);
  }

  letter(session: string, { team, to, id }: LetterRow): Promise<WholeLetter> {
    return fetched(`${run(session)}/letters/${part(team)}/${part(to)}/${part(id)}`);
  }

  addTask(session: string, task: Record<string, unknown>): Promise<unknown> {
    return fetched(`${run(session)}/tasks`, "POST", task);
  }

  changeTask(session: string, board: string, task: string, change: Record<string, unknown>): Promise<unknown> {
    return fetched(`${run(session)}/tasks/${part(board)}/${part(task)}`, "PATCH", change);
  }
}

const part = encodeURIComponent;
const run = (session: string): string => `/api/runs/${part(session)}`;

async function fetched<Told>(path: string, method = "GET", body?: unknown): Promise<Told> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      credentials: "same-origin",
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
    });
  } catch {
    throw new Refused("The server cannot be reached. Is `shoal web` still running?");
  }
  const told = (await response.json().catch(() => null)) as { error?: string } | null;
  if (!response.ok) throw new Refused(told?.error || `The server answered ${response.status}.`);
  return told as Told;
}

interface Ears {
  message(text: string): void;
  entry?(): void;
  runs?(): void;
  opened?(): void;
  dropped?(why: string): void;
  /** Rests in a tab nobody looks at: a browser has few connections for all tabs of one server. */
  onlyWhenSeen?: boolean;
}

/** The browser resumes a broken stream by itself; one that was refused or rested is opened again from what is known. */
function streamed(address: () => string, ears: Ears): () => void {
  let stream: EventSource | null = null;
  let timer = 0;
  const open = () => {
    clearTimeout(timer);
    stream?.close();
    const mine = (stream = new EventSource(address()));
    mine.onopen = () => ears.opened?.();
    mine.onmessage = (event: MessageEvent<string>) => ears.message(event.data);
    mine.addEventListener("entry", () => ears.entry?.());
    mine.addEventListener("runs", () => ears.runs?.());
    mine.onerror = () => {
      if (mine !== stream) return;
      ears.dropped?.("");
      if (mine.readyState === EventSource.CLOSED) void again(mine);
    };
  };
  // The browser does not say why a stream was refused. What is refused for good is not asked for again and again.
  const again = async (refused: EventSource) => {
    const why = await refusal(address());
    if (refused !== stream) return;
    if (why) ears.dropped?.(why);
    else timer = window.setTimeout(open, RETRY);
  };
  const close = () => {
    clearTimeout(timer);
    stream?.close();
    stream = null;
  };
  const looked = () => {
    clearTimeout(timer);
    if (document.visibilityState === "hidden") timer = window.setTimeout(close, REST);
    else if (!stream || stream.readyState === EventSource.CLOSED) open();
  };
  open();
  if (ears.onlyWhenSeen) document.addEventListener("visibilitychange", looked);
  return () => {
    document.removeEventListener("visibilitychange", looked);
    close();
  };
}

/** What the server says about a stream that it does not open; nothing where it may well open it next time. */
async function refusal(address: string): Promise<string> {
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

/** What a page made by `shoal export --html` carries. */
export interface Exported {
  run: RunRow;
  frames: Frame[];
  transcripts: Record<string, Entry[]>;
}

export class ExportSource implements Source {
  readonly steers = false;

  constructor(private readonly exported: Exported) {}

  get start(): string {
    return `#/run/${part(this.exported.run.session)}/replay`;
  }

  async runs(before = ""): Promise<RunLine[]> {
    if (before) return [];
    const { run, frames } = this.exported;
    let usd = 0;
    let tokens = 0;
    const agents = new Set<string>();
    for (const frame of frames) {
      for (const row of frame.agents ?? []) agents.add(row.id);
      for (const point of frame.spend ?? []) [usd, tokens] = [point.usd, point.tokens];
    }
    const { session, cwd, prompt, began, last, ended, teams } = run;
    return [
      { session, cwd, prompt, began, last, live: false, ended, agents: agents.size, usd, tokens, teams, questions: 0 },
    ];
  }

  watch(_session: string, watched: Watched): () => void {
    for (const frame of this.exported.frames) watched.state.apply({ ...frame, live: false });
    const { at, offset } = watched.state;
    queueMicrotask(() => watched.take({ ...EMPTY, at, offset, since: offset }));
    return () => undefined;
  }

  async replay(): Promise<Frame[]> {
    return this.exported.frames;
  }

  async transcript(_session: string, agent: string, after: number, limit = 200): Promise<TranscriptPage> {
    const all = this.exported.transcripts[agent] ?? [];
    const total = (all.at(-1)?.n ?? -1) + 1;
    const start = after < 0 ? Math.max(0, total - limit) : after;
    const entries = all.filter((each) => each.n >= start && each.n < start + limit);
    return { entries, next: Math.min(total, start + limit), total };
  }

  async entry(_session: string, agent: string, n: number): Promise<Entry> {
    const found = this.exported.transcripts[agent]?.find((each) => each.n === n);
    if (!found) throw new Refused("This entry is not in the export.");
    return found;
  }

  hear(): () => void {
    return () => undefined;
  }

  questions(told: (list: OpenQuestion[]) => void): () => void {
    told([]);
    return () => undefined;
  }

  answer = refuse;
  send = refuse;
  order = refuse;
  setMode = refuse;
  task = refuse;
  letter = refuse;
  addTask = refuse;
  changeTask = refuse;
}

const EMPTY: Frame = {
  since: 0, offset: 0, at: 0, live: false, run: null, agents: [], tasks: [], letters: [], questions: [], costs: [],
  spend: [], notes: [], letters_in_all: 0, letters_unread: 0, questions_in_all: 0,
};

async function refuse(): Promise<never> {
  throw new Refused("This is an export: it shows a run and cannot change it.");
}

/** The export inside the page, or else the server that the page came from. */
export function foundSource(): Source {
  const inside = document.getElementById("shoal-export");
  return inside?.textContent ? new ExportSource(JSON.parse(inside.textContent) as Exported) : new ServerSource();
}
