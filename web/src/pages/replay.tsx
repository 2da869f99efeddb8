/** A run at any moment of its past: the other pages, and a slider below them. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Choices, Empty, Problem } from "../bits";
import { RunContext, useSource, type RunView } from "../context";
import { clock, plural, seconds } from "../format";
import { Icon } from "../icons";
import { Reel } from "../reel";
import { runPath, type RunPage, type RunRoute } from "../router";
import { Shell } from "../shell";
import type { RunState, Watched } from "../store";

const PAGES: readonly (readonly [RunPage, string])[] = [
  ["team", "Team"], ["board", "Board"], ["mail", "Mail"], ["cost", "Cost"], ["questions", "Questions"],
];
/** Steps a second while it plays. */
const PACES = ["5", "15", "60"] as const;
type Pace = (typeof PACES)[number];

/** Where each run was left, so that going to another page and back keeps the moment. */
const places = new Map<string, number>();

export function Replay({ view, route, watched, children }: {
  view: RunView;
  route: RunRoute;
  watched: Watched;
  children: ComponentChildren;
}) {
  const source = useSource();
  const [reel, setReel] = useState<Reel | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let here = true;
    source.replay(view.session).then(
      (frames) => here && setReel(new Reel(frames)),
      (error: Error) => here && setProblem(error.message),
    );
    return () => {
      here = false;
    };
  }, [view.session]);
  if (reel?.frames.length) return <Projected reel={reel} view={view} route={route} watched={watched}>{children}</Projected>;
  return (
    <RunContext.Provider value={view}>
      <Shell route={route} watched={watched}>
        <Problem text={problem} />
        {reel && <Empty title="Nothing has happened yet" />}
        {!reel && !problem && <p class="loading soft" role="status">Reading the journal…</p>}
      </Shell>
    </RunContext.Provider>
  );
}

function Projected({ reel, view, route, watched, children }: {
  reel: Reel;
  view: RunView;
  route: RunRoute;
  watched: Watched;
  children: ComponentChildren;
}) {
  const last = reel.frames.length;
  const [place, setPlace] = useState(Math.min(last, places.get(view.session) ?? last));
  const state = useMemo(() => reel.at(place), [reel, place]);
  useEffect(() => {
    places.set(view.session, place);
  }, [place]);
  return (
    <RunContext.Provider value={{ ...view, state, within: "replay", steers: false }}>
      <Shell route={route} watched={watched}>
        <nav class="replay-pages" aria-label="What to replay">
          {PAGES.map(([page, words]) => (
            <a key={page} href={runPath(view.session, page, "", "replay")}
              aria-current={page === route.page || (page === "team" && route.page === "agent") ? "page" : undefined}>{words}</a>
          ))}
        </nav>
        <div class="replay-page">{children}</div>
        <Player reel={reel} state={state} place={place} setPlace={setPlace} />
      </Shell>
    </RunContext.Provider>
  );
}

function Player({ reel, state, place, setPlace }: {
  reel: Reel;
  state: RunState;
  place: number;
  setPlace(change: (now: number) => number): void;
}) {
  const last = reel.frames.length;
  const [playing, setPlaying] = useState(false);
  const [pace, setPace] = useState<Pace>("15");
  const go = (by: number) => setPlace((now) => Math.max(1, Math.min(last, now + by)));
  useEffect(() => {
    if (place >= last) setPlaying(false);
  }, [place]);
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(() => go(1), 1000 / Number(pace));
    return () => clearInterval(timer);
  }, [playing, pace]);
  const play = () => {
    if (!playing && place >= last) setPlace(() => 1);
    setPlaying(!playing);
  };
  return (
    <div class="player" role="group" aria-label="Replay">
      <button type="button" onClick={play} aria-label={playing ? "Pause" : "Play"}><Icon name={playing ? "pause" : "play"} /></button>
      <button type="button" class="wide" onClick={() => go(-1)} disabled={place <= 1} aria-label="One step back"><Icon name="previous" /></button>
      <button type="button" class="wide" onClick={() => go(1)} disabled={place >= last} aria-label="One step on"><Icon name="next" /></button>
      <input type="range" min={1} max={last} value={place} aria-label="Moment of the run"
        aria-valuetext={`${clock(state.at)}, step ${place} of ${last}`}
        onInput={(event) => {
          setPlaying(false);
          setPlace(() => Number(event.currentTarget.value));
        }} />
      <Moment state={state} began={reel.frames[0]!.run?.began ?? reel.frames[0]!.at} place={place} last={last} />
      <Choices<Pace> label="Steps a second" value={pace} onChange={(value) => setPace(value)}
        options={PACES.map((each) => [each, `${Number(each) / 5}×`] as const)} />
    </div>
  );
}

function Moment({ state, began, place, last }: { state: RunState; began: number; place: number; last: number }) {
  return (
    <p class="moment figures" title={`Step ${place} of ${plural(last, "step")}`}>
      <strong>{clock(state.at)}</strong> <span class="soft">+{seconds((state.at - began) / 1000)}</span>
    </p>
  );
}
