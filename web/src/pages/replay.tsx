/** Replay of a run: the other pages at a past moment, with a slider below. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Choices, Empty, Problem } from "../components";
import { RunContext, useSource, type RunContextValue } from "../context";
import { formatClock, formatDuration, formatQuantity } from "../format";
import { Icon } from "../icons";
import { ReplayTimeline } from "../replay_timeline";
import { buildRunPath, type RunPage, type RunRoute } from "../router";
import { Shell } from "../shell";
import type { RunView, WatchedRun } from "../store";

const PAGES: readonly (readonly [RunPage, string])[] = [
  ["team", "Team"], ["board", "Board"], ["mail", "Mail"], ["cost", "Cost"], ["questions", "Questions"],
];
/** Steps per second while playing. */
const PACES = ["5", "15", "60"] as const;
type Pace = (typeof PACES)[number];

/** Last position in each run, kept while other pages are shown. */
const positions = new Map<string, number>();

export function Replay({ context, route, watchedRun, children }: {
  context: RunContextValue;
  route: RunRoute;
  watchedRun: WatchedRun;
  children: ComponentChildren;
}) {
  const source = useSource();
  const [timeline, setTimeline] = useState<ReplayTimeline | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let isMounted = true;
    source.loadReplay(context.session).then(
      (deltas) => isMounted && setTimeline(new ReplayTimeline(deltas)),
      (error: Error) => isMounted && setProblem(error.message),
    );
    return () => {
      isMounted = false;
    };
  }, [context.session]);
  if (timeline?.deltas.length) return <ReplayView timeline={timeline} context={context} route={route} watchedRun={watchedRun}>{children}</ReplayView>;
  return (
    <RunContext.Provider value={context}>
      <Shell route={route} watchedRun={watchedRun}>
        <Problem text={problem} />
        {timeline && <Empty title="No events yet" />}
        {!timeline && !problem && <p class="loading soft" role="status">Reading the journal…</p>}
      </Shell>
    </RunContext.Provider>
  );
}

function ReplayView({ timeline, context, route, watchedRun, children }: {
  timeline: ReplayTimeline;
  context: RunContextValue;
  route: RunRoute;
  watchedRun: WatchedRun;
  children: ComponentChildren;
}) {
  const last = timeline.deltas.length;
  const [position, setPosition] = useState(Math.min(last, positions.get(context.session) ?? last));
  const runView = useMemo(() => timeline.viewAt(position), [timeline, position]);
  useEffect(() => {
    positions.set(context.session, position);
  }, [position]);
  return (
    <RunContext.Provider value={{ ...context, runView, viewMode: "replay", canSteer: false }}>
      <Shell route={route} watchedRun={watchedRun}>
        <nav class="replay-pages" aria-label="What to replay">
          {PAGES.map(([page, label]) => (
            <a key={page} href={buildRunPath(context.session, page, "", "replay")}
              aria-current={page === route.page || (page === "team" && route.page === "agent") ? "page" : undefined}>{label}</a>
          ))}
        </nav>
        <div class="replay-page">{children}</div>
        <Player timeline={timeline} runView={runView} position={position} setPosition={setPosition} />
      </Shell>
    </RunContext.Provider>
  );
}

function Player({ timeline, runView, position, setPosition }: {
  timeline: ReplayTimeline;
  runView: RunView;
  position: number;
  setPosition(change: (now: number) => number): void;
}) {
  const last = timeline.deltas.length;
  const [playing, setPlaying] = useState(false);
  const [pace, setPace] = useState<Pace>("15");
  const moveBy = (by: number) => setPosition((now) => Math.max(1, Math.min(last, now + by)));
  useEffect(() => {
    if (position >= last) setPlaying(false);
  }, [position]);
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(() => moveBy(1), 1000 / Number(pace));
    return () => clearInterval(timer);
  }, [playing, pace]);
  const togglePlaying = () => {
    if (!playing && position >= last) setPosition(() => 1);
    setPlaying(!playing);
  };
  return (
    <div class="player" role="group" aria-label="Replay">
      <button type="button" onClick={togglePlaying} aria-label={playing ? "Pause" : "Play"}><Icon name={playing ? "pause" : "play"} /></button>
      <button type="button" class="wide" onClick={() => moveBy(-1)} disabled={position <= 1} aria-label="One step back"><Icon name="previous" /></button>
      <button type="button" class="wide" onClick={() => moveBy(1)} disabled={position >= last} aria-label="One step forward"><Icon name="next" /></button>
      <input type="range" min={1} max={last} value={position} aria-label="Position in the run"
        aria-valuetext={`${formatClock(runView.at)}, step ${position} of ${last}`}
        onInput={(event) => {
          setPlaying(false);
          setPosition(() => Number(event.currentTarget.value));
        }} />
      <Moment runView={runView} began={timeline.deltas[0]!.run?.began ?? timeline.deltas[0]!.at} position={position} last={last} />
      <Choices<Pace> label="Steps per second" value={pace} onChange={(value) => setPace(value)}
        options={PACES.map((each) => [each, `${Number(each) / 5}×`] as const)} />
    </div>
  );
}

function Moment({ runView, began, position, last }: { runView: RunView; began: number; position: number; last: number }) {
  return (
    <p class="moment figures" title={`Step ${position} of ${formatQuantity(last, "step")}`}>
      <strong>{formatClock(runView.at)}</strong> <span class="soft">+{formatDuration((runView.at - began) / 1000)}</span>
    </p>
  );
}
