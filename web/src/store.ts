/** A run as it stands after the frames it was given: maps by key, and nothing else is worked out here. */

import type {
  AgentRow, CostRow, Frame, LetterRow, NoteRow, QuestionRow, RunRow, SpendPoint, TaskRow,
} from "./types";

const NO_RUN: RunRow = {
  session: "", cwd: "", model: "", mode: "", version: "", began: 0, last: 0, ended: false, turns: 0, prompt: "",
  teams: [], budget_usd: null, budget_tokens: null,
};

type Order<Row> = (rows: Row[]) => Row[];

/** Rows by key. `list` has an order that does not follow from when they came, and is the same until one changes. */
export class Rows<Row> {
  private listed: readonly Row[] | null = null;

  constructor(
    private readonly keyOf: (row: Row) => string,
    private readonly order: Order<Row>,
    private readonly rows = new Map<string, Row>(),
  ) {}

  get size(): number {
    return this.rows.size;
  }

  get list(): readonly Row[] {
    this.listed ??= this.order([...this.rows.values()]);
    return this.listed;
  }

  get(key: string): Row | undefined {
    return this.rows.get(key);
  }

  put(changed: readonly Row[] | undefined, gone?: (row: Row) => boolean): void {
    if (!changed?.length) return;
    for (const row of changed) {
      if (gone?.(row)) this.rows.delete(this.keyOf(row));
      else this.rows.set(this.keyOf(row), row);
    }
    this.listed = null;
  }

  copy(): Rows<Row> {
    const twin = new Rows(this.keyOf, this.order, new Map(this.rows));
    twin.listed = this.listed;
    return twin;
  }
}

const natural = new Intl.Collator("en", { numeric: true }).compare;
const by = <Row>(...steps: ((one: Row, other: Row) => number)[]): Order<Row> => (rows) =>
  rows.sort((one, other) => {
    for (const step of steps) {
      const found = step(one, other);
      if (found) return found;
    }
    return 0;
  });

/** Each after the one that started it; those of one parent by name. */
function inTree(rows: AgentRow[]): AgentRow[] {
  const known = new Set(rows.map((row) => row.id));
  const below = new Map<string, AgentRow[]>();
  for (const row of by<AgentRow>((one, other) => natural(one.name, other.name) || natural(one.id, other.id))(rows)) {
    const parent = known.has(row.parent) && row.parent !== row.id ? row.parent : "";
    const siblings = below.get(parent);
    if (siblings) siblings.push(row);
    else below.set(parent, [row]);
  }
  const found: AgentRow[] = [];
  const walk = (parent: string) => {
    for (const row of below.get(parent) ?? []) {
      found.push(row);
      walk(row.id);
    }
  };
  walk("");
  return found;
}

/** What other programs write may have the same identity in several inboxes. */
export const letterKey = ({ team, to, id }: LetterRow): string => `${team}\n${to}\n${id}`;
export const taskKey = (board: string, id: string): string => `${board}\n${id}`;

export class RunState {
  run: RunRow = NO_RUN;
  live = false;
  offset = 0;
  at = 0;
  /** How many there were; of a long run only the latest are told. */
  lettersInAll = 0;
  agents = new Rows<AgentRow>((row) => row.id, inTree);
  tasks = new Rows<TaskRow>(
    (row) => taskKey(row.board, row.id),
    by((one, other) => natural(one.board, other.board) || natural(one.id, other.id)),
  );
  letters = new Rows<LetterRow>(
    letterKey,
    by((one, other) => one.posted - other.posted || natural(one.id, other.id)),
  );
  questions = new Rows<QuestionRow>(
    (row) => row.id,
    by((one, other) => one.asked - other.asked || natural(one.id, other.id)),
  );
  costs = new Rows<CostRow>(
    (row) => [row.agent, row.model, taskKey(row.board, row.task)].join("\n"),
    by((one, other) => natural(one.name, other.name) || natural(one.model, other.model) || natural(one.task, other.task)),
  );
  spend = new Rows<SpendPoint>((row) => String(row.at), by((one, other) => one.at - other.at));
  notes = new Rows<NoteRow>((row) => String(row.number), by((one, other) => one.number - other.number));

  apply(frame: Frame): void {
    if (frame.run) this.run = frame.run;
    this.live = frame.live;
    this.offset = frame.offset;
    this.at = Math.max(this.at, frame.at);
    this.agents.put(frame.agents);
    this.tasks.put(frame.tasks, (row) => row.status === "deleted");
    this.letters.put(frame.letters);
    this.lettersInAll = Math.max(this.lettersInAll, this.letters.size, frame.letters_in_all);
    this.questions.put(frame.questions);
    this.costs.put(frame.costs);
    this.spend.put(frame.spend);
    this.notes.put(frame.notes);
  }

  copy(): RunState {
    const twin = new RunState();
    Object.assign(twin, {
      run: this.run, live: this.live, offset: this.offset, at: this.at, lettersInAll: this.lettersInAll,
      agents: this.agents.copy(), tasks: this.tasks.copy(), letters: this.letters.copy(),
      questions: this.questions.copy(), costs: this.costs.copy(), spend: this.spend.copy(), notes: this.notes.copy(),
    });
    return twin;
  }
}

/** One run that people look at; it tells when there is something new to draw, at most once a screen refresh. */
export class Watched {
  state = new RunState();
  /** The server was reached, and the first frame is here. */
  begun = false;
  connected = true;
  failure = "";
  private readonly listeners = new Set<() => void>();
  private waiting = false;

  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  take(frame: Frame): void {
    if (frame.since === 0 && this.begun) this.state = new RunState(); // told from the very beginning once more
    this.state.apply(frame);
    this.begun = true;
    this.connected = true;
    this.failure = "";
    this.tell();
  }

  dropped(why: string): void {
    this.connected = false;
    this.failure = why;
    this.tell();
  }

  private tell(): void {
    if (this.waiting) return;
    this.waiting = true;
    const draw = () => {
      if (!this.waiting) return;
      this.waiting = false;
      for (const listener of this.listeners) listener();
    };
    requestAnimationFrame(draw);
    setTimeout(draw, 250); // a hidden tab has no frames, and its title still counts questions
  }
}
