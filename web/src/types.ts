/** The rows of a run's picture, as src/shoal/app/picture/rows.py has them, and what the API says beside them. */

export interface RunRow {
  session: string;
  cwd: string;
  model: string;
  mode: string;
  version: string;
  began: number;
  last: number;
  ended: boolean;
  turns: number;
  prompt: string;
  teams: string[];
  budget_usd: number | null;
  budget_tokens: number | null;
}

export type AgentState = "working" | "waiting" | "idle" | "completed" | "failed" | "killed" | "gone";

export interface AgentRow {
  id: string;
  name: string;
  kind: string;
  state: AgentState;
  doing: string;
  task: string;
  model: string;
  mode: string;
  color: string;
  parent: string;
  team: string;
  depth: number;
  background: boolean;
  since: number;
  heard: number;
  tokens: number;
  usd: number;
  priced: boolean;
  requests: number;
  tool_calls: number;
  question: string;
  waits_for: string[];
  detail: string;
}

export interface TaskRow {
  board: string;
  id: string;
  subject: string;
  status: string;
  owner: string;
  blocked_by: string[];
  rank: number | null;
  changed: number;
  usd: number;
  tokens: number;
  moves: [at: number, status: string, owner: string][];
}

export interface LetterRow {
  id: string;
  team: string;
  sender: string;
  to: string;
  kind: string;
  text: string;
  summary: string;
  fyi: boolean;
  posted: number;
  taken: number;
}

export interface MayRun {
  type: "permission";
  id: string;
  agent: string;
  tool: string;
  input: Record<string, unknown>;
  reason: string;
  /** What an answer for the session allows; empty where that is this call alone. */
  rule: string;
  suggestions?: Suggestion[];
}

/** What a person can change so that the same is not asked again. */
export type Suggestion = { destination: string } & (
  | { type: "addRules"; behavior: string; rules: { toolName: string; ruleContent?: string }[] }
  | { type: "addDirectories"; directories: string[] }
  | { type: "setMode"; mode: string }
);

export interface Choice {
  question: string;
  header: string;
  options: { label: string; description?: string }[];
  multiSelect?: boolean;
}

export interface Choose {
  type: "choice";
  id: string;
  agent: string;
  choices: Choice[];
}

export interface ApprovePlan {
  type: "plan";
  id: string;
  agent: string;
  plan: string;
  path: string;
  digest: string;
  wishes?: string[];
}

export type Question = MayRun | Choose | ApprovePlan;
export type Remember = "once" | "session" | "settings";

export type Answer =
  | { type: "allowed"; remember: Remember; input?: Record<string, unknown> | null }
  | { type: "denied"; reason: string; by?: string }
  | { type: "chosen"; answers: Record<string, string> }
  | { type: "approved"; digest: string; mode?: string | null; by?: string };

export interface QuestionRow {
  id: string;
  agent: string;
  name: string;
  asked: number;
  question: Question;
  answered: number;
  answer: Answer | null;
}

export interface CostRow {
  agent: string;
  name: string;
  kind: string;
  model: string;
  board: string;
  task: string;
  requests: number;
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cache_written_tokens: number;
  usd: number;
  unpriced: number;
}

export interface SpendPoint {
  at: number;
  usd: number;
  tokens: number;
}

export interface NoteRow {
  number: number;
  at: number;
  agent: string;
  text: string;
  kind: string;
}

export interface Frame {
  since: number;
  offset: number;
  at: number;
  live: boolean;
  run: RunRow | null;
  agents: AgentRow[];
  tasks: TaskRow[];
  letters: LetterRow[];
  questions: QuestionRow[];
  costs: CostRow[];
  spend: SpendPoint[];
  notes: NoteRow[];
  letters_in_all: number;
  letters_unread: number;
  questions_in_all: number;
}

/** One line of the list of runs. */
export interface RunLine {
  session: string;
  cwd: string;
  prompt: string;
  began: number;
  last: number;
  live: boolean;
  ended: boolean;
  agents: number;
  usd: number;
  tokens: number;
  teams: string[];
  questions: number;
}

/** A question that is open in some run of the home. */
export interface OpenQuestion {
  session: string;
  id: string;
  agent: string;
  name: string;
  asked: number;
  question: Question;
  previous_plan?: string | null;
}

/** A task as its file has it. */
export interface WholeTask {
  id: string;
  subject: string;
  description: string;
  blocks: string[];
  rank: number | null;
}

/** A letter as the inbox of its reader keeps it. */
export interface WholeLetter {
  id: string;
  text: string;
  /** What a letter of the protocol says, for people. */
  words: string;
}

/** A part of a transcript's entry; which fields there are follows from its type. */
export interface Block {
  type: "text" | "letter" | "thinking" | "tool_use" | "tool_result" | "image" | string;
  text?: string;
  /** Of a letter: who wrote it, whether its signature is right, and what it is about. */
  sender?: string;
  verified?: boolean;
  summary?: string;
  id?: string;
  name?: string;
  input?: unknown;
  tool_use_id?: string;
  is_error?: boolean;
  diff?: string | null;
  media_type?: string;
  data?: string;
  url?: string;
  /** The full length, where not all of it is here. */
  cut?: number;
}

export interface Entry {
  n: number;
  at: number | string;
  role: string;
  by?: string;
  blocks: Block[];
}

export interface TranscriptPage {
  /** Places that say nothing to a person have no entry. */
  entries: Entry[];
  next: number;
  total: number;
}

export interface Delta {
  /** `text`, `thinking`, `tool_input`, `progress`, or `discarded`: what was heard before does not count. */
  kind: string;
  text: string;
}
