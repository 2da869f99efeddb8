/** All runs of the home: live ones first, then the latest. */

import { useContext, useEffect, useMemo, useState } from "preact/hooks";
import { Cost, Empty, Problem, Time, useAction } from "../components";
import { RunListVersionContext, useNow, useSource } from "../context";
import { formatAge, formatDay, formatQuantity, shortenPath, toOneLine } from "../format";
import { buildRunPath } from "../router";
import { RunBadge } from "../shell";
import type { RunSummary } from "../types";
import { VirtualList } from "../virtual_list";

export function RunsPage() {
  const source = useSource();
  const runListVersion = useContext(RunListVersionContext);
  const now = useNow();
  const [runs, setRuns] = useState<RunSummary[] | null>(null);
  const [query, setQuery] = useState("");
  const [busy, problem, runAction] = useAction();
  const load = () => void runAction(async () => setRuns(await source.listRuns()));
  const [isComplete, setIsComplete] = useState(false);
  const loadMore = async () => {
    const last = runs?.at(-1);
    if (busy || isComplete || !last) return;
    await runAction(async () => {
      const more = await source.listRuns(last.session);
      setIsComplete(!more.length);
      setRuns([...(runs ?? []), ...more]);
    });
  };
  useEffect(() => {
    const reload = () => document.visibilityState === "visible" && load();
    document.addEventListener("visibilitychange", reload);
    return () => document.removeEventListener("visibilitychange", reload);
  }, []);
  useEffect(load, [runListVersion]);
  const shown = useMemo(() => {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return [...(runs ?? [])]
      .filter((run) => words.every((word) => `${run.prompt} ${run.cwd} ${run.teams} ${run.session}`.toLowerCase().includes(word)))
      .sort((one, other) => Number(other.live) - Number(one.live) || other.last - one.last);
  }, [runs, query]);
  return (
    <div class="page page-runs">
      <header class="page-head">
        <h1>Runs</h1>
        <input type="search" placeholder="Find by prompt or folder" aria-label="Find a run" value={query}
          onInput={(event) => setQuery(event.currentTarget.value)} />
        <button type="button" onClick={load}>Refresh</button>
      </header>
      <Problem text={problem} />
      {runs && !runs.length && (
        <Empty title="No runs yet">Start one with <code>shoal</code> in a project, and it appears here.</Empty>
      )}
      {runs && !!runs.length && !shown.length && <Empty title="No run matches" />}
      {!!shown.length && (
        <VirtualList count={shown.length} height={68} keyOf={(index) => shown[index]!.session} label="Runs" class="fill"
          onEnd={() => void loadMore()}>
          {(index) => <RunRow run={shown[index]!} now={now} />}
        </VirtualList>
      )}
    </div>
  );
}

function RunRow({ run, now }: { run: RunSummary; now: number }) {
  return (
    <a class="run-line" href={buildRunPath(run.session, "team")}>
      <span class="run-prompt">{toOneLine(run.prompt) || <span class="soft">no prompt yet</span>}</span>
      <span class="run-facts">
        <RunBadge live={run.live} ended={run.ended} />
        {run.questions > 0 && <span class="pill pill-ask">{formatQuantity(run.questions, "question")}</span>}
        <span class="cut" title={run.cwd}>{shortenPath(run.cwd)}</span>
        <span>{formatQuantity(run.agents, "agent")}</span>
        {run.teams.length > 0 && <span class="cut wide">{run.teams.join(", ")}</span>}
      </span>
      <span class="run-cost">
        <Cost usd={run.usd} tokens={run.tokens} />
        <span class="soft"><Time at={run.last} text={run.live ? formatAge(run.last, now) : formatDay(run.last)} /></span>
      </span>
    </a>
  );
}
