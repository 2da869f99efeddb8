/** Run view: state of a run, built from view deltas. */

import type {
  AgentRow, CostRow, MailRow, NoteRow, QuestionRow, RunRow, SpendPoint, TaskRow, ViewDelta, WorkflowRow,
} from "./types";

const NO_RUN: RunRow = {
  session: "", cwd: "", model: "", mode: "", version: "", began: 0, last: 0, ended: false, turns: 0, prompt: "",
  teams: [], budget_usd: null, budget_tokens: null,
};

type Order<Row> = (rows: Row[]) => Row[];

/** Rows by key. `list` is sorted, and stays the same object until a row changes. */
export class Rows<Row> {
  private sorted: readonly Row[] | null = null;

  constructor(
    private readonly keyOf: (row: Row) => string,
    private readonly order: Order<Row>,
    private readonly rows = new Map<string, Row>(),
  ) {}

  get size(): number {
    return this.rows.size;
  }

  get list(): readonly Row[] {
    this.sorted ??= this.order([...this.rows.values()]);
    return this.sorted;
  }

  get(key: string): Row | undefined {
    return this.rows.get(key);
  }

  update(changed: readonly Row[] | undefined, isGone?: (row: Row) => boolean): void {
    if (!changed?.length) return;
    for (const row of changed) {
      if (isGone?.(row)) this.rows.delete(this.keyOf(row));
      else this.rows.set(this.keyOf(row), row);
    }
    this.sorted = null;
  }

  copy(): Rows<Row> {
    const copied = new Rows(this.keyOf, this.order, new Map(this.rows));
    copied.sorted = this.sorted;
    return copied;
  }
}

const compareNatural = new Intl.Collator("en", { numeric: true }).compare;
const sortBy = <Row>(...steps: ((one: Row, other: Row) => number)[]): Order<Row> => (rows) =>
  rows.sort((one, other) => {
    for (const step of steps) {
      const found = step(one, other);
      if (found) return found;
    }
    return 0;
  });

/** Sorts agents as a tree: children follow their parent, siblings are sorted by name. */
function sortAsTree(rows: AgentRow[]): AgentRow[] {
  const known = new Set(rows.map((row) => row.id));
  const below = new Map<string, AgentRow[]>();
  for (const row of sortBy<AgentRow>((one, other) => compareNatural(one.name, other.name) || compareNatural(one.id, other.id))(rows)) {
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

/** Messages of other programs may have the same id in several mailboxes. */
export const makeMailKey = ({ team, to, id }: MailRow): string => `${team}\n${to}\n${id}`;
export const makeTaskKey = (board: string, id: string): string => `${board}\n${id}`;

export class RunView {
  run: RunRow = NO_RUN;
  live = false;
  offset = 0;
  at = 0;
  /** Number of all messages; a long run sends only the latest ones. */
  mailTotal = 0;
  agents = new Rows<AgentRow>((row) => row.id, sortAsTree);
  tasks = new Rows<TaskRow>(
    (row) => makeTaskKey(row.board, row.id),
    sortBy((one, other) => compareNatural(one.board, other.board) || compareNatural(one.id, other.id)),
  );
  mail = new Rows<MailRow>(
    makeMailKey,
    sortBy((one, other) => one.posted - other.posted || compareNatural(one.id, other.id)),
  );
  questions = new Rows<QuestionRow>(
    (row) => row.id,
    sortBy((one, other) => one.asked - other.asked || compareNatural(one.id, other.id)),
  );
  costs = new Rows<CostRow>(
    (row) => [row.agent, row.model, makeTaskKey(row.board, row.task)].join("\n"),
    sortBy((one, other) => compareNatural(one.name, other.name) || compareNatural(one.model, other.model) || compareNatural(one.task, other.task)),
  );
  spend = new Rows<SpendPoint>((row) => String(row.at), sortBy((one, other) => one.at - other.at));
  notes = new Rows<NoteRow>((row) => String(row.number), sortBy((one, other) => one.number - other.number));

  workflows = new Rows<WorkflowRow>((row) => row.id, sortBy((one, other) => one.began - other.began || compareNatural(one.id, other.id)));

  apply(delta: ViewDelta): void {
    if (delta.run) this.run = delta.run;
    this.live = delta.live;
    this.offset = delta.offset;
    this.at = Math.max(this.at, delta.at);
    this.agents.update(delta.agents);
    this.tasks.update(delta.tasks, (row) => row.status === "deleted");
    this.mail.update(delta.letters);
    this.mailTotal = Math.max(this.mailTotal, this.mail.size, delta.letters_in_all);
    this.questions.update(delta.questions);
    this.costs.update(delta.costs);
    this.spend.update(delta.spend);
    this.notes.update(delta.notes);
    this.workflows.update(delta.workflows);
  }

  copy(): RunView {
    const copied = new RunView();
    Object.assign(copied, {
      run: this.run, live: this.live, offset: this.offset, at: this.at, mailTotal: this.mailTotal,
      agents: this.agents.copy(), tasks: this.tasks.copy(), mail: this.mail.copy(),
      questions: this.questions.copy(), costs: this.costs.copy(), spend: this.spend.copy(), notes: this.notes.copy(),
      workflows: this.workflows.copy(),
    });
    return copied;
  }
}

/** A run that is shown. It notifies listeners of changes at most once per screen refresh. */
export class WatchedRun {
  view = new RunView();
  /** True after the first delta. */
  isLoaded = false;
  isConnected = true;
  failure = "";
  private readonly listeners = new Set<() => void>();
  private isScheduled = false;

  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  applyDelta(delta: ViewDelta): void {
    if (delta.since === 0 && this.isLoaded) this.view = new RunView(); // the server starts from the beginning again
    this.view.apply(delta);
    this.isLoaded = true;
    this.isConnected = true;
    this.failure = "";
    this.scheduleNotify();
  }

  markDisconnected(why: string): void {
    this.isConnected = false;
    this.failure = why;
    this.scheduleNotify();
  }

  private scheduleNotify(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    const draw = () => {
      if (!this.isScheduled) return;
      this.isScheduled = false;
      for (const listener of this.listeners) listener();
    };
    requestAnimationFrame(draw);
    setTimeout(draw, 250); // a hidden tab gets no animation frames, but its title still counts questions
  }
}
