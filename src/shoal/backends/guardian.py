"""Guardian: the parent of every process that a session starts, which ends them all with the session.

Run as `python -I -S -E guardian.py FD [RECORDS]`, with the standard library alone, so that it starts fast
and stays small. RECORDS is a directory with one file per guardian of the home, which lists its processes: if
guardian and lead are killed together, others find the processes there. FD is a stream socket to the lead,
with one JSON object per line:

    lead → {"spawn": id, "argv": [...], "cwd": "...", "env": {...}}   with three descriptors: 0, 1 and 2
           {"signal": id, "number": n}
           {"records": "..."}                a guardian that a teammate forked learns RECORDS later
    here → {"started": id, "pid": n} | {"failed": id, "error": "..."}
           {"exited": id, "status": n}      the process itself; negative for a signal
           {"gone": id}                     its whole group, and what left the group before a signal
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would take a third of the startup time
    from typing import Any

KILL_GRACE = 2.0
END_LIMIT = 4.5
PR_SET_CHILD_SUBREAPER = 36
RESTORED_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to import
CONFINE_ARGUMENTS = ["-I", "-S", "-E", "-X", "utf8", f"{HERE}/sandbox/landlock_exec.py"]
"""Arguments with which an interpreter confines a command; the guardian is already an interpreter."""


RECORD_VARIABLE = "SHOAL_GUARDIAN"
"""Variable of each process: the name of the record that lists it."""


class LeadDisconnectedError(Exception):
    """The socket is closed: the session ended or died."""


class ProcessGuardian:
    descriptors = 3
    """Number of descriptors of each spawn order."""

    def __init__(self, lead: socket.socket, wake: int, record: ProcessRecordFile | None = None) -> None:
        self._lead = lead
        self._record = record
        self._wake = wake
        self._leaders: dict[int, int] = {}
        """Running processes: pid → id."""
        self._groups: dict[int, int] = {}
        """Groups that may have members, whether or not their leader is alive: id → pid."""
        self._strays: dict[int, set[int]] = {}
        """Members that left the group of a process that was sent a signal: id → pids."""
        self._adopted: set[int] = set()
        """Recorded daemons: their parents ended, and this process is their parent now."""
        self._descriptors: deque[int] = deque()
        self._received = b""

    def serve(self) -> None:
        try:
            while True:
                ready, _, _ = select.select(
                    [self._lead.fileno(), self._wake], [], [], self.kill_overdue_processes()
                )
                if self._wake in ready:
                    self._reap_children()
                if self._lead.fileno() in ready:
                    self._receive_orders()
        except LeadDisconnectedError:
            self._end_all_processes()
            if self._record is not None:
                self._record.remove()
                self._wait_for_end_of_killed_lead()
                # If the lead is dead, also the programs in its panes, which it has recorded itself.
                end_leftover_processes(self._record.directory)

    def start_process(self, order: dict[str, Any], fds: list[int]) -> int:
        """Start a process and return its pid. Raises OSError and ValueError."""
        env = order["env"] if self._record is None else {**order["env"], RECORD_VARIABLE: self._record.name}
        return spawn_program(order["argv"], order["cwd"], env, fds)

    def on_child_exit(self, pid: int, identity: int | None) -> None:
        """Handle the end of a child; `identity` is None if it was adopted after its parent ended.

        Its descendants may stay, like the background programs of a shell.
        """

    def kill_overdue_processes(self) -> float | None:
        """Perform due actions; return the seconds until the next one is due."""
        return None

    def _receive_orders(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._lead, 1 << 18, self.descriptors)
        except OSError as error:
            raise LeadDisconnectedError from error
        if not data:
            raise LeadDisconnectedError
        for fd in fds:
            os.set_inheritable(fd, False)  # noqa: FBT003
        # Descriptors arrive with the first bytes of their order, and orders in sequence: both queues match.
        self._descriptors.extend(fds)
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "spawn" in order:
                self._spawn_process(order)
            elif "records" in order:
                self._open_record(order["records"])
            else:
                self._signal_process_and_descendants(order["signal"], order["number"])

    def _open_record(self, directory: str) -> None:
        end_leftover_processes(directory)
        self._record = open_process_record(directory)

    def _send_message_to_lead(self, message: dict[str, Any]) -> None:
        try:
            self._lead.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise LeadDisconnectedError from error

    def _spawn_process(self, order: dict[str, Any]) -> None:
        fds = [self._descriptors.popleft() for _ in range(self.descriptors)]
        try:
            pid = self.start_process(order, fds)
        except (OSError, ValueError) as error:
            self._send_message_to_lead({"failed": order["spawn"], "error": str(error)})
            return
        finally:
            for fd in fds:
                os.close(fd)
        if self._record is not None:
            self._record.add_process(pid)
        self._leaders[pid] = order["spawn"]
        self._groups[order["spawn"]] = pid
        self._send_message_to_lead({"started": order["spawn"], "pid": pid})

    def _signal_process_and_descendants(self, identity: int, number: int) -> None:
        leader = self._groups.get(identity)
        if leader is None:
            return
        strays = self._strays.setdefault(identity, set())
        if leader in self._leaders:  # they can be found only while it lives
            strays.update(list_descendant_pids(leader))
        send_signals(number, groups=[leader], pids=list(strays))

    def _reap_children(self) -> bool:
        """Reap every process that ended; return False when none is left."""
        drain_pipe(self._wake)
        has_children = True
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                has_children = False
                break
            if pid == 0:
                break
            identity = self._leaders.pop(pid, None)
            self._adopted.discard(pid)
            self.on_child_exit(pid, identity)
            if identity is not None:
                self._send_message_to_lead({"exited": identity, "status": os.waitstatus_to_exitcode(status)})
        if has_children and self._record is not None:
            self._record_adopted_children(self._record)
        self._report_empty_process_groups()
        return has_children

    def _record_adopted_children(self, record: ProcessRecordFile) -> None:
        """Record daemons: without the variable in their environment, nothing else leads to them."""
        for pid in list_child_pids():
            if pid not in self._leaders and pid not in self._adopted:
                self._adopted.add(pid)
                record.add_process(pid)

    def _report_empty_process_groups(self) -> None:
        # Immediately, because the system may reuse the number of an empty group.
        for identity, leader in list(self._groups.items()):
            if leader in self._leaders or is_signal_target_alive(os.killpg, leader):
                continue
            strays = {pid for pid in self._strays.pop(identity, ()) if is_signal_target_alive(os.kill, pid)}
            if strays:
                self._strays[identity] = strays
                continue
            del self._groups[identity]
            if self._record is not None and not self._groups and not self._adopted:
                self._record.clear()
            self._send_message_to_lead({"gone": identity})

    def _end_all_processes(self) -> None:
        started = time.monotonic()
        self._signal_all_processes(signal.SIGTERM)
        has_children = self._wait_for_children(started + KILL_GRACE)
        while has_children and time.monotonic() < started + END_LIMIT:
            # Repeated: a process may have forked between being listed and being killed.
            self._signal_all_processes(signal.SIGKILL)
            has_children = self._wait_for_children(min(time.monotonic() + 0.05, started + END_LIMIT))
        self._signal_all_processes(signal.SIGKILL)

    def _signal_all_processes(self, number: int) -> None:
        send_signals(number, groups=list(self._groups.values()), pids=list_descendant_pids(os.getpid()))

    def _wait_for_end_of_killed_lead(self) -> None:
        """Wait until the lead's record is unlocked: the socket of a killed process may close first.

        A lead that ends its session closes one direction only and waits for this process.
        """
        lead_pid = read_socket_creator_pid(self._lead)
        watch = select.poll()
        watch.register(self._lead, 0)
        deadline = time.monotonic() + END_LIMIT
        while os.getppid() == lead_pid and any(events & select.POLLHUP for _, events in watch.poll(0)):
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)

    def _wait_for_children(self, deadline: float) -> bool:
        """Wait for the end of every child; return True if some are left."""
        while True:
            try:
                if not self._reap_children():
                    return False
            except LeadDisconnectedError:  # the lead is gone; continue reaping
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([self._wake], [], [], remaining)[0]:
                return True


class ProcessRecordFile:
    """Lists the processes of one guardian, or the panes of one lead, by pid and start time.

    It is locked while its guardian or lead lives.
    """

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import
        self.name = f"{os.getpid()}-{os.urandom(6).hex()}"
        self.directory = directory
        self._path = f"{directory}/{self.name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        temporary = f"{directory}/.{self.name}"
        self._fd = os.open(temporary, flags, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.write(self._fd, f"boot {read_boot_id()}\n".encode())
        self._header_size = os.fstat(self._fd).st_size
        # Named only once it is locked: nobody takes it for the record of a dead guardian.
        os.rename(temporary, self._path)  # noqa: PTH104

    def add_process(self, pid: int) -> None:
        stat = read_process_stat(pid)
        if stat is not None:
            try:  # noqa: SIM105 - contextlib is slow to import
                os.write(self._fd, f"{pid} {stat[START_FIELD].decode()}\n".encode())
            except OSError:
                pass  # a full disk must not keep a program from running

    def clear(self) -> None:
        """Forget all processes, because none is left."""
        try:  # noqa: SIM105 - contextlib is slow to import
            os.ftruncate(self._fd, self._header_size)
        except OSError:
            pass

    def remove(self) -> None:
        try:  # noqa: SIM105 - contextlib is slow to import
            os.unlink(self._path)  # noqa: PTH108
        except OSError:
            pass
        os.close(self._fd)


def open_process_record(directory: str) -> ProcessRecordFile | None:
    """Return a new record; None if the directory cannot be used, because programs must start anyway."""
    try:
        return ProcessRecordFile(directory)
    except OSError:
        return None


def end_leftover_processes(directory: str) -> list[int]:
    """Kill the processes of guardians that died together with their lead; return the pids of the leaders.

    A process counts only if its start time, or the variable in its environment, proves that it is the same
    one: the system reuses pids.
    """
    records = lock_abandoned_records(directory)
    ended: list[int] = []
    try:
        while found := [pid for pid in find_leftover_leaders(records) if pid not in ended]:
            kill_process_trees(found)
            ended += found  # then again: one of them may have started a daemon meanwhile
        for name in records:
            try:  # noqa: SIM105 - contextlib is slow to import
                os.unlink(f"{directory}/{name}")  # noqa: PTH108
            except OSError:
                pass
    finally:
        for fd, _ in records.values():
            os.close(fd)
    return ended


def lock_abandoned_records(directory: str) -> dict[str, tuple[int, bytes]]:
    """Lock the records of dead guardians; return their descriptors and contents by name.

    The record that lists this process itself is not one of them: another process ends its processes.
    """
    found: dict[str, tuple[int, bytes]] = {}
    own = find_own_record()
    try:
        names = sorted(os.listdir(directory))  # noqa: PTH208
    except OSError:
        return found
    for name in names:
        if name == own:
            continue
        try:
            # Without O_NONBLOCK, a pipe in place of a record would wait for a writer.
            fd = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found[name] = fd, os.read(fd, 1 << 22)
        except OSError:
            os.close(fd)  # its guardian lives, or another process ends its processes
    return found


def find_own_record() -> str:
    """Return the record that lists this process; empty if it is not a command of a run."""
    marker = f"{RECORD_VARIABLE}=".encode()
    found = [each for each in read_process_variables("self") if each.startswith(marker)]
    return os.fsdecode(found[0][len(marker) :]) if found else ""


def read_process_variables(pid: str) -> list[bytes]:
    """Return the variables with which a process was started; none if they cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return file.read().split(b"\0")
    except OSError:
        return []


def find_leftover_leaders(records: dict[str, tuple[int, bytes]]) -> list[int]:
    """Return the recorded processes that still run, and all processes whose environment names a record."""
    header = f"boot {read_boot_id()}".encode()
    found: list[int] = []
    markers: set[bytes] = set()
    for name, (_, content) in records.items():
        boot, _, rest = content.partition(b"\n")
        if boot != header:
            continue  # the machine was restarted meanwhile
        markers.add(f"{RECORD_VARIABLE}={name}".encode())
        for line in rest.splitlines():
            pid, _, start = line.partition(b" ")
            if not (pid.isdigit() and start.isdigit()):
                continue
            stat = read_process_stat(int(pid))
            if stat is not None and stat[STATE_FIELD] not in b"ZX" and stat[START_FIELD] == start:
                found.append(int(pid))
    marked = find_marked_processes(markers) if markers else []
    return found + [pid for pid in marked if pid not in found]


def find_marked_processes(markers: set[bytes]) -> list[int]:
    """Return the processes with one of these variables, also daemons, which have left their command."""
    found: list[int] = []
    try:
        entries = os.listdir("/proc")  # noqa: PTH208
    except OSError:
        return found
    for entry in entries:
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        if not markers.isdisjoint(read_process_variables(entry)):
            found.append(int(entry))
    return found


STATE_FIELD, PARENT_FIELD, START_FIELD = 0, 1, 19
"""Positions in `/proc/PID/stat` after the name of the program."""


def read_process_stat(pid: int) -> list[bytes] | None:
    """Return the fields of a process after its name; None if it is gone or there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def read_socket_creator_pid(end: socket.socket) -> int:
    """Return the process that created a socket pair; 0 if the system does not tell (Linux only)."""
    if sys.platform != "linux":
        return 0
    credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], sys.byteorder)


def read_boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


def kill_process_trees(leaders: list[int]) -> None:
    """Kill processes, their groups and all their descendants."""
    if not leaders:
        return
    stopped: set[int] = set()
    families = read_process_tree()
    found = {*leaders, *(pid for leader in leaders for pid in collect_descendant_pids(leader, families))}
    backup = BackupKiller([-leader for leader in leaders])
    # Stop first, then list again: a process that forks after it was listed would leave an orphan.
    while found - stopped:
        backup.add_targets(found - stopped)
        send_signals(signal.SIGSTOP, groups=leaders, pids=list(found - stopped))
        stopped |= found
        families = read_process_tree()
        found = {pid for leader in leaders for pid in collect_descendant_pids(leader, families)}
    send_signals(signal.SIGKILL, groups=leaders, pids=list(stopped))
    backup.finish()


BACKUP_SCRIPT = """
while read -r target; do set -- "$@" "$target"; done
for target; do kill -s KILL -- "$target"; done 2>/dev/null
"""


class BackupKiller:
    """Shell that kills the targets if this process is killed first: stopped processes would stay forever.

    Each target is passed on before it is stopped. Negative targets are process groups.
    """

    def __init__(self, targets: list[int]) -> None:
        read_end, self._write_end = os.pipe()
        self._pid = 0
        try:
            self._pid = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", BACKUP_SCRIPT, "shoal:backup-killer"],
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, read_end, 0)],
                setsid=True,
                setsigmask=(),
                setsigdef=RESTORED_SIGNALS,
            )
        except OSError:
            pass  # out of processes or memory: killing the targets is all the more important
        finally:
            os.close(read_end)
        self.add_targets(targets)

    def add_targets(self, targets: list[int] | set[int]) -> None:
        if self._pid:
            try:  # noqa: SIM105 - contextlib is slow to import
                os.write(self._write_end, b"".join([b"%d\n" % target for target in targets]))
            except OSError:
                pass  # somebody killed the shell

    def finish(self) -> None:
        """End the shell; the targets are killed."""
        if self._pid:
            # Before the end of its input, which would make it kill the targets: their pids may be reused.
            try_send_signal(os.kill, self._pid, signal.SIGKILL)
            try:  # noqa: SIM105 - contextlib is slow to import
                os.waitpid(self._pid, 0)
            except ChildProcessError:
                pass  # somebody else reaped it
        os.close(self._write_end)


def spawn_program(argv: list[str], cwd: str, env: dict[str, str], fds: list[int]) -> int:
    """Start a program in its own session and process group; return its pid."""
    try:
        os.chdir(cwd)
    except OSError as error:
        raise OSError(f"cannot start in {cwd}: {error.strerror}") from error
    try:
        if argv[1:7] == CONFINE_ARGUMENTS:
            return spawn_landlock_command(argv[7:], env, fds)
        return os.posix_spawn(
            find_program_in_path(argv[0], env),
            argv,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)],
            setsid=True,
            setsigmask=(),
            setsigdef=RESTORED_SIGNALS,
        )
    except OSError as error:
        raise OSError(f"cannot run {argv[0]}: {error.strerror}") from error
    finally:
        os.chdir("/")


def spawn_landlock_command(words: list[str], env: dict[str, str], fds: list[int]) -> int:
    """Do what the script does, without starting another interpreter; return the pid of the child."""
    confine = load_landlock_exec_function()
    read_end, write_end = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            exec_landlock_command_in_child(confine, words, env, fds, write_end)
    finally:
        os.close(write_end)
        # The child closes it too, or ends: from then on signals reach its group.
        os.read(read_end, 1)
        os.close(read_end)
    return pid


def exec_landlock_command_in_child(
    become: Any, words: list[str], env: dict[str, str], fds: list[int], done: int
) -> None:
    """Run the confined command in the child; does not return."""
    try:
        os.setsid()
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        restore_default_signals()
        os.close(done)
        become(words, env)
    finally:
        os._exit(126)


def load_landlock_exec_function() -> Any:
    """Return the function of the script that confines the process and executes the command."""
    sys.path.insert(0, f"{HERE}/sandbox")
    try:
        import landlock_exec  # type: ignore[import-not-found]
    except ImportError as error:
        raise OSError(errno.ENOENT, f"{CONFINE_ARGUMENTS[-1]} does not exist") from error
    finally:
        del sys.path[0]
    return landlock_exec.exec_confined


def restore_default_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in RESTORED_SIGNALS:
        try:  # noqa: SIM105 - contextlib is slow to import
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            pass  # reserved by the C library
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def find_program_in_path(name: str, env: dict[str, str]) -> str:
    """Return the file to run, looked up in the PATH that the process will have."""
    if "/" in name:
        return name
    for directory in env.get("PATH", os.defpath).split(":"):
        path = os.path.join(directory or ".", name)  # noqa: PTH118 - pathlib is slow to import
        if os.access(path, os.X_OK) and not os.path.isdir(path):  # noqa: PTH112
            return path
    return name


def send_signals(number: int, *, groups: list[int], pids: list[int]) -> None:
    # A stopped process handles TERM only after it continues.
    for each in (number, signal.SIGCONT) if number == signal.SIGTERM else (number,):
        for group in groups:
            try_send_signal(os.killpg, group, each)
        for pid in pids:
            try_send_signal(os.kill, pid, each)


def try_send_signal(kill: Any, target: int, number: int) -> None:
    try:  # noqa: SIM105 - contextlib is slow to import
        kill(target, number)
    except (ProcessLookupError, PermissionError):
        pass  # already gone, or now owned by another user


def is_signal_target_alive(kill: Any, target: int) -> bool:
    try:
        kill(target, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def list_descendant_pids(root: int) -> list[int]:
    """Return every process below `root`, whatever its group; none without /proc."""
    return collect_descendant_pids(root, read_process_tree())


def collect_descendant_pids(root: int, families: dict[int, list[int]]) -> list[int]:
    found = list(families.get(root, ()))
    for pid in found:
        found.extend(families.get(pid, ()))
    return found


def read_process_tree() -> dict[int, list[int]]:
    """Return the children of every process that has some."""
    families: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - pathlib is slow to import
    except OSError:
        return families
    for name in names:
        stat = read_process_stat(int(name)) if name.isdecimal() else None
        if stat is not None:
            families.setdefault(int(stat[PARENT_FIELD]), []).append(int(name))
    return families


def list_child_pids() -> list[int]:
    """Return the children of this process, which has one thread; none if the system has no list of them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def drain_pipe(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def become_subreaper() -> None:
    """Adopt orphaned daemons below us, so that none is lost (Linux only)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    fd = int(sys.argv[1])
    os.set_inheritable(fd, False)  # noqa: FBT003
    wake, record = set_up_child_reaping(), None
    if len(sys.argv) > 2:
        end_leftover_processes(sys.argv[2])
        record = open_process_record(sys.argv[2])
    ProcessGuardian(socket.socket(fileno=fd), wake, record).serve()


def set_up_child_reaping() -> int:
    """Make this process end last and reap every child; return the descriptor that signals an end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    become_subreaper()
    return read_end


if __name__ == "__main__":
    main()
