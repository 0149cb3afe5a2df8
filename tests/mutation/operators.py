"""The mechanical changes: where in a C file each can be made, and what then stands there."""
import dataclasses
import re
import sys

from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "checks"))
from common import functions_of  # noqa: E402  (the checks split C into code and comments already)


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    operator: str
    start: int  # offsets into the text
    end: int
    put: str

    def change(self, text):
        """The line or lines as they are, and as they become."""
        first = text.rfind("\n", 0, self.start) + 1
        last = text.find("\n", self.end)
        after = text[first : self.start] + self.put + text[self.end : last]
        return " ".join(text[first:last].split()), " ".join(after.split())

    def key(self, text):
        """A name that survives edits elsewhere in the file."""
        return " ~ ".join([self.file, self.operator, *self.change(text)])


COMPARISON = re.compile(r"(?<= )(==|!=|<=|>=|<|>)(?= )")
OTHER_COMPARISON = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">"}
CONSTANT = re.compile(r"(?<![\w.])(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)(?![\w.])")
CONDITION = re.compile(r"\b(if|while) \(")
STATEMENT = re.compile(r"(?<=[;{}\n])\s*\n[ \t]+([(*A-Za-z_+\-][^;{}#]*;)")
NO_STATEMENT = re.compile(
    r"(return|break|continue|goto|case|default|typedef|struct|static|extern|const|enum|union|else|do|while|for|if|"
    r"HAK_ASSERT|_Static_assert|__asm__)\b"
)
DECLARATION = re.compile(r"(?:const\s+)?[A-Za-z_]\w*(?:\([\w ]*\))?[\s*]+(?:const\s+)?[A-Za-z_]\w*\s*[=;\[,]")
ORDER = re.compile(r"\bhak_atomic_(\w+?)_(?:weak_)?(acquire|release|acq_rel)(?=\()")
OPERAND = r"(?:\w+(?:(?:->|\.)\w+|\[[^\[\]]*\])*)"
SWAP = re.compile(rf"(?<![\w.>\])] )(?<![\w.>])({OPERAND}) (-|<<|>>|/|%|<|<=) ({OPERAND})(?![\w(\[.]|->)")
CHOICE = re.compile(r"\? ([^?:;{}]+?) : ([^?:;{},()]+)(?=[;,)])")


def other_constants(match):
    digits, suffix = match.groups()
    if re.match(r"0\d", digits):
        return
    value = int(digits, 0)
    yield f"{value + 1}{suffix}"
    if value > 0:
        yield f"{value - 1}{suffix}"


def is_left_out(line):
    """Directives that are no code, assertions (they are checks themselves), and what says something to gcc."""
    text = line.strip()
    if text.startswith("#"):
        return not text.startswith("#define")
    return re.match(r"(_Static_assert|HAK_ASSERT|__asm__|\.|.*__attribute__)", text) is not None


def closing(code, start):
    """The offset of the parenthesis that closes the one at `start`."""
    depth = 0
    for offset in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[offset], 0)
        if depth == 0:
            return offset
    return None


def candidates(code, text):
    """(operator, start, end, text to put there) of every change to the code; `text` is the same with its literals."""
    for found in COMPARISON.finditer(code):
        yield "comparison", found.start(), found.end(), OTHER_COMPARISON[found.group()]
    for found in CONSTANT.finditer(code):
        for put in other_constants(found):
            yield "constant", found.start(), found.end(), put
    for found in CONDITION.finditer(code):
        end = closing(code, found.end() - 1)
        if end is not None:
            yield "condition", found.end(), end, f"!({text[found.end():end]})"
    for found in STATEMENT.finditer(code):
        statement = found.group(1)
        if not NO_STATEMENT.match(statement) and not DECLARATION.match(statement):
            yield "statement", found.start(1), found.end(1), "(void)0;" + "\n" * statement.count("\n")
    for found in ORDER.finditer(code):
        yield "order", found.start(), found.end(), f"hak_atomic_{found.group(1)}_relaxed"
    for found in SWAP.finditer(code):
        left, sign, right = found.groups()
        if left != right:
            yield "operands", found.start(), found.end(), f"{right} {sign} {left}"
    for found in CHOICE.finditer(code):
        first, second = text[found.start(1) : found.end(1)], text[found.start(2) : found.end(2)]
        yield "operands", found.start(), found.end(), f"? {second} : {first}"


OPERATORS = ("comparison", "constant", "condition", "statement", "order", "operands")


def mutants_of(source):
    """Every mutant of one common.Source."""
    in_function = set()
    for _, first, last, _ in functions_of(source):
        in_function.update(range(first + 1, last))
    mutants = []
    for operator, start, end, put in candidates(source.code, source.text):
        line = source.line_of(start)
        text = source.lines[line - 1]
        inside = line in in_function
        if is_left_out(text) or (operator == "statement" and not inside):
            continue
        # A comment inside stays what it was: only the code around it is changed.
        mutants.append(Mutant(source.name, line, operator, start, end, put))
    return mutants
