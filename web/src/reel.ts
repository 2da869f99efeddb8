/** A run as a film: its frames, and states kept on the way so that going back is quick. */

import { RunState } from "./store";
import type { Frame } from "./types";

const APART = 32;

export class Reel {
  private readonly kept: RunState[] = [new RunState()];
  private shown = new RunState();
  private place = 0;

  constructor(readonly frames: readonly Frame[]) {}

  /** The run after its first `place` frames. The state is a new object whenever the place is another. */
  at(place: number): RunState {
    const wanted = Math.max(0, Math.min(this.frames.length, place));
    if (wanted === this.place) return this.shown;
    const nearest = Math.min(Math.floor(wanted / APART), this.kept.length - 1);
    const onward = this.place <= wanted && this.place >= nearest * APART;
    const state = (onward ? this.shown : this.kept[nearest]!).copy();
    let reached = onward ? this.place : nearest * APART;
    while (reached < wanted) {
      state.apply(this.frames[reached]!);
      reached += 1;
      if (reached === this.kept.length * APART) this.kept.push(state.copy());
    }
    this.place = wanted;
    this.shown = state;
    return state;
  }
}
