"""One run of one command through build/bench/launch, with a time limit.

Standard output and error go to memory files: no disk can be full, and nothing competes with the command by
reading a pipe while it runs.
"""

import json
import os
import signal
from dataclasses import dataclass, field
from typing import Optional, Sequence

OUTPUT_KEPT_BYTES = 1 << 20


@dataclass
class Outcome:
    """How a run ended. `status` is exit, signal, timeout, interrupted, no-exec, no-report or old."""

    status: str
    value: int
    usage: dict = field(default_factory=dict)  # as the launcher reports: wall_s, user_s, room, ...
    output: int = -1  # memory file with standard output; close() gives it back
    errors: str = ""  # the end of standard error

    def failure(self) -> Optional[str]:
        """Why this run gives no result, None if it ended with exit code 0."""
        last = self.errors.strip().splitlines()[-1].strip() if self.errors.strip() else ""
        said = f" ({last[:200]})" if last else ""
        if self.status == "exit":
            return None if self.value == 0 else f"exit code {self.value}{said}"
        if self.status == "signal":
            return f"crashed with {signal_name(self.value)}{said}"
        if self.status == "timeout":
            return f"hung: no end after {self.usage.get('wall_s', 0):.1f} s, killed"
        if self.status == "no-exec":
            return f"cannot be started: {os.strerror(self.value)}"
        if self.status == "interrupted":
            return "interrupted"
        if self.status == "old":
            return "the launcher is older than this runner; 'make bench-programs' builds it"
        return f"the launcher gave no report{said}"

    def read_output(self, limit: int = OUTPUT_KEPT_BYTES) -> bytes:
        return os.pread(self.output, limit, 0)

    def output_chunks(self):
        at = 0
        while chunk := os.pread(self.output, OUTPUT_KEPT_BYTES, at):
            at += len(chunk)
            yield chunk

    def close(self) -> None:
        if self.output >= 0:
            os.close(self.output)
            self.output = -1


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _spawn(argv: Sequence[str], env: dict, stdin: str, out: int, err: int, report: int) -> int:
    actions = [
        (os.POSIX_SPAWN_DUP2, report, 3),
        (os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, err, 2),
    ]
    return os.posix_spawn(argv[0], argv, env, file_actions=actions)


def _high(fd: int) -> int:
    """The same file at a descriptor above the ones that the child's 0 to 3 are made from."""
    import fcntl

    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return copy


def run(
    launcher: str,
    command: Sequence[str],
    env: dict,
    limit_s: float,
    repeat: int = 1,
    stdin: str = "/dev/null",
) -> Outcome:
    """Runs the command `repeat` times in a row and waits. Ctrl-C kills it and is raised on."""
    out = _high(os.memfd_create("output"))
    err = _high(os.memfd_create("errors"))
    read_end, write_end = os.pipe()
    read_end, write_end = _high(read_end), _high(write_end)
    argv = [launcher, f"{limit_s:.3f}", str(repeat), *command]
    pid = -1
    try:
        pid = _spawn(argv, env, stdin, out, err, write_end)
        os.close(write_end)
        write_end = -1
        text = b""
        while chunk := os.read(read_end, 65536):
            text += chunk
        os.waitpid(pid, 0)
    except BaseException:
        if pid > 0:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        os.close(out)
        raise
    finally:
        size = os.fstat(err).st_size
        errors = os.pread(err, 4096, max(0, size - 4096)).decode(errors="replace")
        for fd in (err, read_end, write_end):
            if fd >= 0:
                os.close(fd)
    try:
        usage = json.loads(text)
    except ValueError:
        return Outcome("no-report", 0, {}, out, errors)
    if "distance_ns" not in usage:
        return Outcome("old", 0, {}, out, errors)
    return Outcome(usage.pop("status"), usage.pop("value"), usage, out, errors)
