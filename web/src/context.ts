/** What every page may use without being handed it: the source, the run in view, the time. */

import { createContext } from "preact";
import { useContext, useEffect, useReducer, useState } from "preact/hooks";
import type { Source } from "./data";
import type { RunState } from "./store";
import type { AgentRow, OpenQuestion } from "./types";
import { runPath } from "./router";

export const SourceContext = createContext<Source | null>(null);
export const QuestionsContext = createContext<OpenQuestion[]>([]);

/** Counts the times that the list of runs may have become another. */
export const StirContext = createContext(0);

export function useSource(): Source {
  const source = useContext(SourceContext);
  if (!source) throw new Error("there is no source");
  return source;
}

/** The open questions of all runs. */
export const useQuestions = (): OpenQuestion[] => useContext(QuestionsContext);

/** A run as a page shows it: as it stands, or as it stood at a moment of its past. */
export interface RunView {
  session: string;
  state: RunState;
  /** `replay` while a moment of the past is shown; links stay in it. */
  within: "" | "replay";
  /** Whether the run can be told something now. */
  steers: boolean;
}

export const RunContext = createContext<RunView | null>(null);

export function useRun(): RunView {
  const view = useContext(RunContext);
  if (!view) throw new Error("there is no run in view");
  return view;
}

export function useRedraw(): () => void {
  const [, redraw] = useReducer((drawn: number, _: void) => drawn + 1, 0);
  return redraw as () => void;
}

/** Milliseconds, each second while a live run is in view; the moment that is shown, in the past. */
export function useNow(): number {
  const view = useContext(RunContext);
  const ticking = !view || (view.state.live && !view.within);
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!ticking) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [ticking]);
  return ticking ? now : (view?.state.at ?? now);
}

export function agentPath(view: RunView, agent: AgentRow | string): string {
  return runPath(view.session, "agent", typeof agent === "string" ? agent : agent.id, view.within);
}

/** The agent that its team calls so; the one started last, if several. */
export function agentCalled(state: RunState, name: string): AgentRow | undefined {
  const called = name === "team-lead" ? "lead" : name;
  return state.agents.list.findLast((each) => each.name === called) ?? state.agents.get(name);
}
