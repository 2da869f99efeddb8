/** All runs of the home, the live ones and the latest first. */

import { useContext, useEffect, useMemo, useState } from "preact/hooks";
import { Cost, Empty, Problem, Time, useOrder } from "../bits";
import { StirContext, useNow, useSource } from "../context";
import { ago, day, folder, oneLine, plural } from "../format";
import { runPath } from "../router";
import { RunState } from "../shell";
import type { RunLine } from "../types";
import { Windowed } from "../windowed";

export function RunsPage() {
  const source = useSource();
  const stirs = useContext(StirContext);
  const now = useNow();
  const [runs, setRuns] = useState<RunLine[] | null>(null);
  const [wanted, setWanted] = useState("");
  const [busy, problem, give] = useOrder();
  const load = () => void give(async () => setRuns(await source.runs()));
  const [whole, setWhole] = useState(false);
  const loadMore = async () => {
    const last = runs?.at(-1);
    if (busy || whole || !last) return;
    await give(async () => {
      const more = await source.runs(last.session);
      setWhole(!more.length);
      setRuns([...(runs ?? []), ...more]);
    });
  };
  useEffect(() => {
    const seen = () => document.visibilityState === "visible" && load();
    document.addEventListener("visibilitychange", seen);
    return () => document.removeEventListener("visibilitychange", seen);
  }, []);
  useEffect(load, [stirs]);
  const shown = useMemo(() => {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    return [...(runs ?? [])]
      .filter((run) => words.every((word) => `${run.prompt} ${run.cwd} ${run.teams} ${run.session}`.toLowerCase().includes(word)))
      .sort((one, other) => Number(other.live) - Number(one.live) || other.last - one.last);
  }, [runs, wanted]);
  return (
    <div class="page page-runs">
      <header class="page-head">
        <h1>Runs</h1>
        <input type="search" placeholder="Find by words or folder" aria-label="Find a run" value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)} />
        <button type="button" onClick={load}>Refresh</button>
      </header>
      <Problem text={problem} />
      {runs && !runs.length && (
        <Empty title="No runs yet">Start one with <code>shoal</code> in a project, and it appears here.</Empty>
      )}
      {runs && !!runs.length && !shown.length && <Empty title="No run matches" />}
      {!!shown.length && (
        <Windowed count={shown.length} height={68} keyOf={(index) => shown[index]!.session} label="Runs" class="fill"
          onEnd={() => void loadMore()}>
          {(index) => <Line run={shown[index]!} now={now} />}
        </Windowed>
      )}
    </div>
  );
}

function Line({ run, now }: { run: RunLine; now: number }) {
  return (
    <a class="run-line" href={runPath(run.session, "team")}>
      <span class="run-what">{oneLine(run.prompt) || <span class="soft">no words yet</span>}</span>
      <span class="run-how">
        <RunState live={run.live} ended={run.ended} />
        {run.questions > 0 && <span class="pill pill-ask">{plural(run.questions, "question")}</span>}
        <span class="cut" title={run.cwd}>{folder(run.cwd)}</span>
        <span>{plural(run.agents, "agent")}</span>
        {run.teams.length > 0 && <span class="cut wide">{run.teams.join(", ")}</span>}
      </span>
      <span class="run-when">
        <Cost usd={run.usd} tokens={run.tokens} />
        <span class="soft"><Time at={run.last} text={run.live ? ago(run.last, now) : day(run.last)} /></span>
      </span>
    </a>
  );
}
