"""Disturbs a lead and its agents at random, resumes it until all work is done, and finds faults."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from msgspec import Struct
from tests.chaos import shoal_command, worktree_faults
from tests.chaos.flaky_provider import FlakyProvider
from tests.chaos.lead_launcher import LeadLauncher, run_launcher
from tests.chaos.process_table import ProcessTimer, describe_process, get_load, send_signal
from tests.chaos.round_tmux import RoundTmux
from tests.chaos.team_lead import LeadStart
from tests.chaos.troubles import TROUBLES, RoundContext, Trouble
from tests.chaos.workloads import AGENTS_WORKLOAD, WORKLOADS, CleanupCommand, Workload, WorkloadPart

EXIT_TIMEOUT = 5.0
"""Seconds after a lead's end until none of its processes runs."""
MAX_RETRIES = 3
"""Number of times a lead that failed is resumed after its trouble is over."""
MAX_SKIPPED = 100
"""Number of unplayable plans in a row after which none of the requested ones is playable."""
BACKENDS = ("in-process", "process", "tmux")


class RoundPlan(Struct, frozen=True, kw_only=True):
    """Trouble, workload and backend that belong to one seed."""

    seed: int
    trouble: str
    work: str
    backend: str

    def __str__(self) -> str:
        where = f" ({self.backend})" if self.work != AGENTS_WORKLOAD.name else ""
        return f"{self.trouble} over {self.work}{where}"


def generate_plans(
    seed: int,
    *,
    troubles: Sequence[str] = tuple(TROUBLES),
    works: Sequence[str] = tuple(WORKLOADS),
    backends: Sequence[str] = BACKENDS,
) -> Iterator[RoundPlan]:
    """Yield each combination in turn, starting at this seed; sub-agents run in the process of their lead."""
    while True:
        yield make_plan(seed, troubles=troubles, works=works, backends=backends)
        seed += 1


def make_plan(
    seed: int, *, troubles: Sequence[str], works: Sequence[str], backends: Sequence[str]
) -> RoundPlan:
    each = [
        (trouble, work, backend)
        for work, backend, trouble in product(works, backends, troubles)
        if TROUBLES[trouble].applies_to(backend if work != AGENTS_WORKLOAD.name else "in-process")
        and (work != AGENTS_WORKLOAD.name or backend == backends[0])
    ]
    if not each:
        raise ValueError("There is nothing of that kind to play: only teammates in tmux have panes.")
    trouble, work, backend = each[seed % len(each)]
    return RoundPlan(seed=seed, trouble=trouble, work=work, backend=backend)


def explain_impossible(plan: RoundPlan) -> str:
    """Return why this machine cannot play the plan, or an empty string."""
    if plan.backend == "tmux" and not shutil.which("tmux"):
        return "tmux is not installed"
    return TROUBLES[plan.trouble].explain_impossible()


class RoundTally(Struct, frozen=True, kw_only=True):
    plan: RoundPlan
    struck: int
    resumed: int
    seconds: float
    faults: tuple[str, ...]


class ChaosRound:
    """One run in its own home and project; the seed determines what happens to it."""

    def __init__(self, directory: Path, plan: RoundPlan, launcher: LeadLauncher, *, max_strikes: int) -> None:
        self._directory = directory.resolve() / str(plan.seed)
        self._plan = plan
        self._work: Workload = WORKLOADS[plan.work]
        self._launcher = launcher
        self._max_strikes = max_strikes
        self._random = random.Random(plan.seed)
        self._session = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        self._faults: list[str] = []
        self._resume_count = 0

    def run_round(self) -> RoundTally:
        since = time.monotonic()
        kind = TROUBLES[self._plan.trouble]
        asked = self._plan.backend != "in-process" or "provider" in self._plan.trouble or kind.settings
        provider = FlakyProvider(self._work.script, random.Random(self._plan.seed)) if asked else None
        panes = None
        if self._plan.backend == "tmux" and self._work is not AGENTS_WORKLOAD:
            panes = RoundTmux(self._directory, in_user_pane=self._random.random() < 0.5)
        scene = RoundContext(
            directory=self._directory, rng=self._random, session=self._session, provider=provider, tmux=panes
        )
        trouble = kind(scene)
        with ExitStack() as ends:
            ends.enter_context(trouble.run_round())
            if panes is not None:
                ends.enter_context(panes.run_round())
            if provider is not None:
                ends.enter_context(provider.run_server())
            through = ends.enter_context(run_launcher(trouble.env)) if trouble.env else self._launcher
            for name in ("home", "tmp"):
                (self._directory / name).mkdir()
            _make_project(self._directory / "project")
            self._run_parts(trouble, through)
            self._faults += [f"left behind: {path}" for path in (self._directory / "tmp").glob("*-*")]
            self._faults += trouble.faults
            # Faults of the provider are complete when all is over.
            trouble.stop_trouble()
            struck = trouble.strikes
        return RoundTally(
            plan=self._plan,
            struck=struck,
            resumed=self._resume_count,
            seconds=time.monotonic() - since,
            faults=tuple(self._faults),
        )

    def _run_parts(self, trouble: Trouble, launcher: LeadLauncher) -> None:
        *parts, last = self._work.parts
        done = all(self._run_until_done(part, trouble, launcher) for part in parts)
        if done and self._work.find_backend_faults is not None:
            self._faults += self._work.find_backend_faults(self._directory, self._plan.backend)
        if done and self._work.removal is not None and self._random.random() < 0.25:
            self._kill_and_clean_up(last, self._work.removal, trouble, launcher)
        elif done:
            self._run_until_done(last, trouble, launcher)
        self._run_shoal("worktree", "reap")
        self._faults += worktree_faults.find_worktree_faults(self._directory)

    def _kill_and_clean_up(
        self, part: WorkloadPart, removal: CleanupCommand, trouble: Trouble, launcher: LeadLauncher
    ) -> None:
        """Kill the lead without resuming it, and let a person clean up after it."""
        lead = launcher.start_lead(self._build_lead_start(part.prompt, trouble, None))
        if launcher.wait_for_end(self._random.uniform(0, 2 * part.span)) is None:
            trouble.strikes += 1
            send_signal([lead], signal.SIGKILL)
            launcher.wait_for_end(10)
        self._check_leftovers(trouble, launcher)
        if removal.is_needed(self._directory):
            self._run_shoal(*removal.arguments)
        self._faults += removal.find_faults(self._directory)

    def _run_shoal(self, *arguments: str) -> None:
        if wrong := shoal_command.run_shoal(self._directory, *arguments, timeout=30):
            self._faults.append(wrong)

    def _run_until_done(self, part: WorkloadPart, trouble: Trouble, launcher: LeadLauncher) -> bool:
        strikes, tries = self._random.randint(1, min(self._max_strikes, trouble.max_strikes)), MAX_RETRIES
        begun = part is not self._work.parts[0]
        while True:
            struck = strikes > 0
            status = self._run_lead(
                part, trouble, launcher, part.resume_prompt if begun else part.prompt, disturbed=struck
            )
            self._check_leftovers(trouble, launcher)
            begun = begun or self._has_begun()
            if status == 0:
                wrong = part.find_faults(self._directory, self._session)
                if not wrong or not trouble.may_fail or not tries:
                    self._faults += wrong
                    return not wrong
                # As a person would: ask again for what was given up because of the trouble.
                tries -= 1
            elif not struck or (status not in trouble.exit_statuses and not trouble.may_fail):
                self._faults.append(f"the lead ended with {status}: {self._read_log()}")
                return False
            strikes -= 1
            self._resume_count += 1

    def _check_leftovers(self, trouble: Trouble, launcher: LeadLauncher) -> None:
        self._faults += launcher.find_left_running(EXIT_TIMEOUT, str(self._directory / "home"))
        if trouble.context.tmux is not None:
            self._faults += trouble.context.tmux.find_leftovers(EXIT_TIMEOUT)

    def _run_lead(
        self, part: WorkloadPart, trouble: Trouble, launcher: LeadLauncher, prompt: str, *, disturbed: bool
    ) -> int:
        """Return the exit status of a lead that is disturbed at some moments, or at none."""
        death = trouble.choose_death(part) if disturbed else None
        lead = launcher.start_lead(self._build_lead_start(prompt, trouble, death))
        status = None
        if disturbed and death is None:
            acts = trouble.generate_actions(part, lead, launcher)
            for pause, act in acts:
                status = launcher.wait_for_end(pause)
                if status is not None:
                    break
                act()
            acts.close()
            trouble.stop_trouble()
        elif death is not None:
            trouble.strikes += 1
        timer = ProcessTimer(trouble.timeout)
        status = launcher.wait_for_timer(timer) if status is None else status
        if status is None:
            self._faults.append(
                f"the lead ({describe_process(lead)}) did not come to its end in {timer.describe()}; "
                f"{self._describe_last_event()}"
            )
            # Both print stacks into its log: of its threads, and of its tasks.
            send_signal([lead], signal.SIGUSR2)
            send_signal([lead], signal.SIGUSR1)
            status = launcher.wait_for_timer(ProcessTimer(3))
        if status is None:
            send_signal([lead], signal.SIGKILL)
            status = launcher.wait_for_timer(ProcessTimer(10))
        assert status is not None
        return status

    def _describe_last_event(self) -> str:
        """Return the last line of the journal and its age: a slow lead writes, one that hangs does not."""
        journal = self._directory / "home" / "shoal" / "runs" / self._session / "journal.jsonl"
        if not journal.exists():
            return "it has no journal"
        last = journal.read_text().splitlines()[-1:]
        return f"its last event, {time.time() - journal.stat().st_mtime:.0f} s ago: {''.join(last)[:200]}"

    def _build_lead_start(self, prompt: str, trouble: Trouble, death: object) -> LeadStart:
        return LeadStart(
            home=str(self._directory / "home"),
            project=str(self._directory / "project"),
            session=self._session,
            prompt=prompt,
            backend=self._plan.backend,
            provider="" if trouble.provider is None else trouble.provider.url,
            death=death,  # type: ignore[arg-type]
            log=str(self._log_path),
            work=self._plan.work,
            settings=dict(trouble.settings),
            environ={} if trouble.context.tmux is None else dict(trouble.context.tmux.build_env()),
            python=trouble.python,
        )

    def _has_begun(self) -> bool:
        return any((self._directory / "home" / "projects").glob(f"*/{self._session}.jsonl"))

    @property
    def _log_path(self) -> Path:
        return self._directory.with_suffix(".log")

    def _read_log(self) -> str:
        return self._log_path.read_text()[-6000:] if self._log_path.exists() else ""


def _make_project(project: Path) -> None:
    project.mkdir()
    (project / "code.txt").write_text("one\n")
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*author, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)


def run_rounds(
    directory: Path,
    plans: Iterator[RoundPlan],
    print_line: Callable[[str], None],
    *,
    rounds: int,
    max_strikes: int = 4,
    seconds: float = float("inf"),
    keep: bool = False,
) -> list[RoundTally]:
    """Run a number of rounds until the time is up; a round can be repeated with its seed."""
    since, tallies = time.monotonic(), list[RoundTally]()
    told: set[str] = set()
    passed_over = 0
    with run_launcher() as through:
        for plan in plans:
            late = time.monotonic() - since > seconds
            if len(tallies) >= rounds or late or passed_over > MAX_SKIPPED:
                break
            if why := explain_impossible(plan):
                if str(plan) not in told:
                    print_line(f"{plan} is left out: {why}")
                told.add(str(plan))
                passed_over += 1
                continue
            passed_over = 0
            tally = ChaosRound(directory, plan, through, max_strikes=max_strikes).run_round()
            tallies.append(tally)
            print_line(
                f"seed {plan.seed}: {plan}: struck {tally.struck} times, resumed {tally.resumed}, "
                f"{len(tally.faults)} faults ({tally.seconds:.1f} s, load {get_load():.1f})"
            )
            for fault in tally.faults[:20]:
                print_line(f"  {fault}")
            if not tally.faults and not keep:
                shutil.rmtree(directory / str(plan.seed), ignore_errors=True)
    return tallies
