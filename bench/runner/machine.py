"""The header: what machine, system, compiler and commit the figures belong to."""

import datetime
import os
import platform

from .allocators import hakmem_version, libc_version, output_of

TUNING_PREFIXES = ("HAKMEM_", "MALLOC_", "GLIBC_TUNABLES", "MIMALLOC_", "TCMALLOC_", "_RJEM_")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _cpu_name() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model"):
            family = [
                l.partition(":")[2].strip()
                for l in _read("/proc/cpuinfo").splitlines()
                if l.startswith(("cpu family", "model\t"))
            ][:2]
            return value.strip() + (f" (family {family[0]}, model {family[1]})" if len(family) == 2 else "")
    return platform.machine()


def _thp_mode() -> str:
    text = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    return text[text.find("[") + 1 : text.find("]")] if "[" in text else "not visible"


def _memory() -> str:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return f"{int(line.split()[1]) / 1024 / 1024:.1f} GiB"
    return "unknown"


def describe(top: str, compiler: str, clock: str) -> dict:
    """One text for each name, in the order in which they are printed."""
    tuning = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(TUNING_PREFIXES))
    load = os.getloadavg()
    return {
        "date": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z"),
        "CPU": _cpu_name(),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "memory": _memory(),
        "kernel": f"{platform.system()} {platform.release()}",
        "THP mode": _thp_mode(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not visible",
        "C library": libc_version(),
        "compiler": (output_of(compiler, "--version").splitlines() or ["unknown"])[0],
        "commit": hakmem_version(top),
        "load before": " ".join(f"{v:.2f}" for v in load) + " (1, 5, 15 minutes)",
        "tuning": ", ".join(tuning) or "none (no HAKMEM_*, MALLOC_* or the like is set)",
        "clock": "wall time" if clock == "wall" else "CPU time of the process",
    }
