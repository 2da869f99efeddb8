/** Timeline of a replay: view deltas, with snapshots so that going back is fast. */

import { RunView } from "./store";
import type { ViewDelta } from "./types";

const SNAPSHOT_DISTANCE = 32;

export class ReplayTimeline {
  private readonly snapshots: RunView[] = [new RunView()];
  private view = new RunView();
  private position = 0;

  constructor(readonly deltas: readonly ViewDelta[]) {}

  /** Returns the run view after the first `position` deltas; a new object for every new position. */
  viewAt(position: number): RunView {
    const target = Math.max(0, Math.min(this.deltas.length, position));
    if (target === this.position) return this.view;
    const nearest = Math.min(Math.floor(target / SNAPSHOT_DISTANCE), this.snapshots.length - 1);
    const isForward = this.position <= target && this.position >= nearest * SNAPSHOT_DISTANCE;
    const next = (isForward ? this.view : this.snapshots[nearest]!).copy();
    let reached = isForward ? this.position : nearest * SNAPSHOT_DISTANCE;
    while (reached < target) {
      next.apply(this.deltas[reached]!);
      reached += 1;
      if (reached === this.snapshots.length * SNAPSHOT_DISTANCE) this.snapshots.push(next.copy());
    }
    this.position = target;
    this.view = next;
    return next;
  }
}
