/** Contexts that every page can use: data source, current run and time. */

import { createContext } from "preact";
import { useContext, useEffect, useReducer, useState } from "preact/hooks";
import type { Source } from "./data_source";
import type { RunView } from "./store";
import type { AgentRow, OpenQuestion } from "./types";
import { buildRunPath } from "./router";

export const SourceContext = createContext<Source | null>(null);
export const QuestionsContext = createContext<OpenQuestion[]>([]);

/** Number that grows when the list of runs may have changed. */
export const RunListVersionContext = createContext(0);

export function useSource(): Source {
  const source = useContext(SourceContext);
  if (!source) throw new Error("there is no source");
  return source;
}

/** The open questions of all runs. */
export const useQuestions = (): OpenQuestion[] => useContext(QuestionsContext);

/** The current run as a page shows it: now, or at a past moment in a replay. */
export interface RunContextValue {
  session: string;
  runView: RunView;
  /** `replay` while a past moment is shown; links stay in the replay. */
  viewMode: "" | "replay";
  /** True if the run accepts messages and commands now. */
  canSteer: boolean;
}

export const RunContext = createContext<RunContextValue | null>(null);

export function useRun(): RunContextValue {
  const context = useContext(RunContext);
  if (!context) throw new Error("there is no run in view");
  return context;
}

export function useRedraw(): () => void {
  const [, redraw] = useReducer((version: number, _: void) => version + 1, 0);
  return redraw as () => void;
}

/** Current time in milliseconds, updated every second for a live run; in a replay, the shown moment. */
export function useNow(): number {
  const context = useContext(RunContext);
  const ticking = !context || (context.runView.live && !context.viewMode);
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!ticking) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [ticking]);
  return ticking ? now : (context?.runView.at ?? now);
}

export function buildAgentPath(context: RunContextValue, agent: AgentRow | string): string {
  return buildRunPath(context.session, "agent", typeof agent === "string" ? agent : agent.id, context.viewMode);
}

/** Finds an agent by its name in the team; the latest one if several share the name. */
export function findAgentByName(runView: RunView, name: string): AgentRow | undefined {
  const known = name === "team-lead" ? "lead" : name;
  return runView.agents.list.findLast((each) => each.name === known) ?? runView.agents.get(name);
}
