/** Rows of a run view, as in src/shoal/app/run_view/view_rows.py, and other types of the API. */

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

export type AgentState = "working" | "waiting" | "idle" | "down" | "completed" | "failed" | "killed" | "gone";

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
  /** Workflow that started it and its phase; empty for other agents. */
  workflow: string;
  phase: string;
}

export type WorkflowStatus = "running" | "completed" | "failed" | "stopped" | "interrupted";

export interface WorkflowRow {
  id: string;
  name: string;
  status: WorkflowStatus;
  phase: string;
  phases: { name: string; agents: number; finished: number }[];
  steps: number;
  finished: number;
  began: number;
  ended: number;
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

export interface MailRow {
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

export interface PermissionQuestion {
  type: "permission";
  id: string;
  agent: string;
  tool: string;
  input: Record<string, unknown>;
  reason: string;
  /** Rule that an answer for the session adds; empty if it allows only this call. */
  rule: string;
  suggestions?: Suggestion[];
}

/** A settings change that avoids asking the same question again. */
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

export interface ChoiceQuestion {
  type: "choice";
  id: string;
  agent: string;
  choices: Choice[];
}

export interface PlanApprovalQuestion {
  type: "plan";
  id: string;
  agent: string;
  plan: string;
  path: string;
  digest: string;
  wishes?: string[];
}

export type Question = PermissionQuestion | ChoiceQuestion | PlanApprovalQuestion;
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
  /** Workflow and phase that the agent works for; empty for other agents. */
  phase: string;
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

export interface ViewDelta {
  since: number;
  offset: number;
  at: number;
  live: boolean;
  run: RunRow | null;
  agents: AgentRow[];
  tasks: TaskRow[];
  letters: MailRow[];
  questions: QuestionRow[];
  costs: CostRow[];
  spend: SpendPoint[];
  notes: NoteRow[];
  workflows: WorkflowRow[];
  letters_in_all: number;
  letters_unread: number;
  questions_in_all: number;
}

/** One run in the list of runs. */
export interface RunSummary {
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

/** An open question of any run. */
export interface OpenQuestion {
  session: string;
  id: string;
  agent: string;
  name: string;
  asked: number;
  question: Question;
  previous_plan?: string | null;
}

/** A task as stored in its file. */
export interface TaskDetails {
  id: string;
  subject: string;
  description: string;
  blocks: string[];
  rank: number | null;
}

/** A mail message as stored in the mailbox of its recipient. */
export interface MailDetails {
  id: string;
  text: string;
  /** Readable text of a protocol message. */
  words: string;
}

/** A block of a transcript entry; its fields depend on the type. */
export interface Block {
  type: "text" | "letter" | "thinking" | "tool_use" | "tool_result" | "image" | string;
  text?: string;
  /** For mail: sender, whether its signature is valid, and summary. */
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
  /** Full length, if the text is shortened. */
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
  /** Entries without visible content are left out. */
  entries: Entry[];
  next: number;
  total: number;
}

export interface StreamDelta {
  /** `text`, `thinking`, `tool_input`, `progress`, or `discarded`: drop the text streamed so far. */
  kind: string;
  text: string;
}
