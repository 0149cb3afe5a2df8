"""The copy of the repository in which mutants are planted: what belongs to it, what was built in it, and how it
becomes clean again without building everything anew.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRATCH = ROOT / "build/mutation"
TREE = SCRATCH / "tree"
CLEAN = SCRATCH / "clean"  # objects of the tree without a mutant, with their times
STARTED = SCRATCH / "started"  # digests of trees that were built and run without a mutant, and how far
REBUILT = ("debug", "archive", "release", "model", "tsan", "ubsan", "yields", "tests")  # whose objects CLEAN has
BUILD_LIMIT_S = 1800
# Linking without LTO takes a tenth of the time. What then fails without a mutant is left out.
MAKE = ["make", "-s", "LTO=0"]


def run(command, limit_s=BUILD_LIMIT_S, **options):
    return subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=limit_s, check=False, **options)


def make(targets):
    """None, or the first line of what make says when it fails."""
    try:
        told = run([*MAKE, *targets])
    except subprocess.TimeoutExpired:
        return "building did not end"
    if told.returncode == 0:
        return None
    errors = [line for line in told.stderr.splitlines() if "error" in line] or told.stderr.splitlines() or ["failed"]
    return errors[0][:160]


# ---- the tree as it should be -------------------------------------------------------------------------------


def refresh():
    """Makes the copy what the repository is; files that are the same keep their time, so little is rebuilt."""
    TREE.mkdir(parents=True, exist_ok=True)
    told = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    )
    names = {name for name in told.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        source, target = ROOT / name, TREE / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for target in TREE.rglob("*"):
        name = str(target.relative_to(TREE))
        if target.is_file() and not name.startswith(("build/", "libhakmem", ".git/")) and name not in names:
            target.unlink()
    # The checks ask git what belongs to the tree.
    if not (TREE / ".git").exists():
        run(["git", "init", "-q"])


def digest():
    """Of everything that decides what a suite says, but for this folder."""
    total = hashlib.sha256()
    paths = [TREE / "Makefile", *(path for folder in ("core", "include", "tests") for path in (TREE / folder).rglob("*"))]
    for path in sorted(paths):
        if path.is_file() and path.suffix != ".pyc" and "mutation" not in path.parts[len(TREE.parts) :]:
            total.update(str(path).encode() + path.read_bytes())
    return total.hexdigest()


def remember_clean():
    """Copies the objects of a tree that was built without a mutant."""
    shutil.rmtree(CLEAN, ignore_errors=True)
    for flavour in REBUILT:
        for path in (TREE / "build" / flavour).rglob("*.o"):
            target = CLEAN / path.relative_to(TREE)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


# ---- a mutant in it -----------------------------------------------------------------------------------------


def products():
    yield from (path for path in (TREE / "build").rglob("*") if path.is_file() and not path.is_symlink())
    yield from (path for path in TREE.glob("libhakmem*") if path.is_file())


class Planted:
    """The mutant in the tree while the block runs. Afterwards the source has its old time, objects made from the
    mutant are replaced by the clean ones, and whatever else was built meanwhile goes."""

    def __init__(self, mutant):
        self.path = TREE / mutant.file
        self.times = self.path.stat()
        self.text = self.path.read_text(encoding="utf-8")
        self.mutated = self.text[: mutant.start] + mutant.put + self.text[mutant.end :]

    def __enter__(self):
        self.path.write_text(self.mutated, encoding="utf-8")
        self.since_ns = self.path.stat().st_mtime_ns
        return self

    def __exit__(self, *_):
        self.path.write_text(self.text, encoding="utf-8")
        os.utime(self.path, ns=(self.times.st_atime_ns, self.times.st_mtime_ns))
        for path in self.rebuilt():
            kept = CLEAN / path.relative_to(TREE)
            if kept.exists():
                shutil.copy2(kept, path)
            elif path.suffix != ".d" and path.name not in ("flags", "link"):
                path.unlink()

    def rebuilt(self):
        return [path for path in products() if path.stat().st_mtime_ns >= self.since_ns]

    def changed_objects(self, flavour):
        """The flavour's objects whose code is not the clean one's."""
        made = [path for path in self.rebuilt() if path.suffix == ".o" and path.relative_to(TREE).parts[1] == flavour]
        return [path for path in made if path.name != "libhakmem.o" and is_other_code(path, CLEAN / path.relative_to(TREE))]


def code_of(path):
    """A digest of an object without its debugging information."""
    bare = SCRATCH / "bare.o"
    subprocess.run(["objcopy", "-g", path, bare], check=True)
    return hashlib.sha256(bare.read_bytes()).digest()


def is_other_code(path, clean):
    return not clean.exists() or code_of(path) != code_of(clean)
