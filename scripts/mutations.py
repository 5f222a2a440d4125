"""Changes one thing in the code at a time, and names the changes that no test notices.

    python scripts/mutations.py record tests/losses tests/policies      # once: which test runs which line, how long
    python scripts/mutations.py run lightning_rl/losses                 # every mutant of these files
    python scripts/mutations.py run lightning_rl/policies --sample 200  # that many of them, drawn with --seed

A mutant is a file with one changed node: a sign, a comparison, a constant, a term of a sum left out, a `detach`, a
`no_grad` or a statement that updates state taken away. It is run in a fork of a process that has collected the tests,
and only against those that run the changed lines, the quickest first, up to the first failure. Messages (`raise`,
f-strings), annotations and docstrings are left as they are, and defaults of parameters, which the contract tests
compare with the YAML files.

Survivors that mean the same as the original are listed in `scripts/equivalent_mutants.txt` with the reason:
`file ¦ function ¦ change ¦ reason`. The record is `.mutations.json` in the working directory; recording needs the
package coverage.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib.abc
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "lightning_rl"
RECORD = Path(".mutations.json")
OUTPUT = os.dup(1)
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")

BINARY: dict[type[ast.operator], list[type[ast.operator]]] = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.Pow: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.Mult],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
}
COMPARED: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
RENAMED = {
    "min": "max",
    "amin": "amax",
    "argmin": "argmax",
    "minimum": "maximum",
    "any": "all",
    "sum": "mean",
    "zeros_like": "ones_like",
    "zeros": "ones",
}
RENAMED |= {new: old for old, new in RENAMED.items()}
DROPPED_CALLS = {"detach", "abs", "square", "sqrt", "exp", "log", "clamp", "clamp_", "float", "clone", "copy"}
DROPPED_CONTEXTS = {"no_grad", "frozen", "in_eval_mode", "set_grad_enabled", "flush_denormals"}
KEPT_STATEMENTS = (ast.Import, ast.ImportFrom, ast.Assert, ast.Raise, ast.FunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Mutant:
    """One change: the `which`-th alternative of the `node`-th node (as `ast.walk` counts) of a file."""

    path: str
    node: int
    which: int
    lines: tuple[int, int]
    function: str
    change: str
    in_body: bool  # of a function, where its code can be exchanged; else the change acts when the module is imported

    @property
    def key(self) -> tuple[str, str, str]:
        """File, function and change: what a list names, whatever line it is in."""
        return self.path, self.function, self.change

    def __str__(self) -> str:
        return f"{self.path}:{self.lines[0]} in {self.function}: {self.change}"


# -- making mutants ---------------------------------------------------------------------------------------------------
def mutants_of(path: str) -> list[Mutant]:
    """All mutants of a file, in the order of its nodes."""
    tree = ast.parse((ROOT / path).read_text())
    functions, bodies, untouched = owners(tree), in_bodies(tree), left_alone(tree)
    found = []
    for number, node in enumerate(ast.walk(tree)):
        if node in untouched:
            continue
        for which, new in enumerate(alternatives(node)):
            span = (node.lineno, node.end_lineno or node.lineno) if hasattr(node, "lineno") else (0, 0)
            if isinstance(node, ast.If):
                span = (node.test.lineno, node.test.end_lineno or node.test.lineno)
            elif isinstance(node, ast.FunctionDef):
                span = (node.body[0].lineno, node.body[-1].end_lineno or node.lineno)
            elif node not in bodies:  # what runs at import runs in no test
                span = (1, sys.maxsize)
            change = described(node, new)
            found.append(Mutant(path, number, which, span, functions[node], change, node in bodies))
    return found


def mutated(mutant: Mutant) -> ast.Module:
    """The file's tree with the change."""
    tree = ast.parse((ROOT / mutant.path).read_text())
    old = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.node)
    new = list(alternatives(old))[mutant.which]

    class Exchange(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return new if node is old else self.generic_visit(node)

    return ast.fix_missing_locations(Exchange().visit(tree))


def alternatives(node: ast.AST) -> Iterator[Any]:
    """What may stand in a node's place; a list is several statements."""
    if isinstance(node, ast.BinOp):
        for operator in BINARY.get(type(node.op), []):
            yield located(ast.BinOp(node.left, operator(), node.right), node)
        if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            yield node.left
        if isinstance(node.op, ast.Add | ast.Sub):
            yield node.right if isinstance(node.op, ast.Add) else located(ast.UnaryOp(ast.USub(), node.right), node)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for operator in COMPARED[type(node.ops[0])]:
            yield located(ast.Compare(node.left, [operator()], node.comparators), node)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield located(ast.BoolOp(other, node.values), node)
        for index in range(len(node.values)):
            rest = node.values[:index] + node.values[index + 1 :]
            yield rest[0] if len(rest) == 1 else located(ast.BoolOp(node.op, rest), node)
    elif isinstance(node, ast.Call):
        yield from other_calls(node)
    elif isinstance(node, ast.Constant):
        for value in other_values(node.value):
            yield located(ast.Constant(value), node)
    elif isinstance(node, ast.IfExp):
        yield located(ast.IfExp(node.test, node.orelse, node.body), node)
    else:
        yield from other_statements(node)


def other_calls(node: ast.Call) -> Iterator[ast.expr]:
    """Calls of the opposite function, and what a call is made of without it."""
    called = node.func
    if isinstance(called, ast.Attribute):
        if called.attr in RENAMED:
            renamed = located(ast.Attribute(called.value, RENAMED[called.attr], called.ctx), called)
            yield located(ast.Call(renamed, node.args, node.keywords), node)
        module = isinstance(called.value, ast.Name) and called.value.id in ("torch", "np", "F", "math")
        if called.attr in DROPPED_CALLS and not module:
            yield called.value
        elif called.attr in DROPPED_CALLS and module and node.args:
            yield node.args[0]
    elif isinstance(called, ast.Name) and called.id in ("min", "max", "any", "all"):
        renamed = located(ast.Name(RENAMED[called.id], ast.Load()), called)
        yield located(ast.Call(renamed, node.args, node.keywords), node)


def other_values(value: Any) -> Iterator[Any]:
    """Constants that mean something else."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
        if value:
            yield 0 if isinstance(value, int) else 2 * value


def other_statements(node: ast.AST) -> Iterator[Any]:
    """Conditions turned around, statements and protections left out."""
    if isinstance(node, ast.If):
        negated = located(ast.UnaryOp(ast.Not(), node.test), node.test)
        yield located(ast.If(negated, node.body, node.orelse), node)
    elif isinstance(node, ast.With):
        named = [item for item in node.items if called_name(item.context_expr) in DROPPED_CONTEXTS]
        if named:
            rest = [item for item in node.items if item not in named]
            yield located(ast.With(rest, node.body), node) if rest else node.body
    elif isinstance(node, ast.FunctionDef):
        plain = [each for each in node.decorator_list if called_name(each) not in DROPPED_CONTEXTS]
        if len(plain) < len(node.decorator_list):
            bare = copy.copy(node)
            bare.decorator_list = plain
            yield bare
    elif may_be_left_out(node):
        yield located(ast.Pass(), node)


def may_be_left_out(node: ast.AST) -> bool:
    """Statements that change state, or call something for what it does."""
    if isinstance(node, ast.Assign):  # of a plain name it would be an error at the next line
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    calls = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return calls or isinstance(node, ast.AugAssign | ast.For | ast.While)


def called_name(node: ast.expr) -> str:
    """The last part of the name that is called."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def located(new: Any, old: ast.AST) -> Any:
    """`new` where `old` was."""
    return ast.copy_location(new, old)


def left_alone(tree: ast.Module) -> set[ast.AST]:
    """Nodes that say something to people or to type checkers, and all that is in them."""
    found: set[ast.AST] = set()

    def leave(*nodes: ast.AST | None) -> None:
        for node in nodes:
            found.update(ast.walk(node) if node is not None else ())

    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
            leave(node)
        elif isinstance(node, ast.arg):
            leave(node.annotation)
        elif isinstance(node, ast.Call):  # an axis: with its sign it is the same one, or an error
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            leave(*(keyword.value for keyword in node.keywords if keyword.arg == "strict"))  # checks, of zip
            leave(*(each for each in given if isinstance(each, ast.UnaryOp) and isinstance(each.operand, ast.Constant)))
        elif isinstance(node, ast.FunctionDef):
            leave(node.returns, *node.args.defaults, *node.args.kw_defaults)
        elif isinstance(node, ast.AnnAssign):
            leave(node.annotation)
        elif isinstance(node, ast.ClassDef):
            leave(*node.decorator_list)  # of dataclasses: frozen, slots
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            leave(node)  # a docstring
        elif isinstance(node, ast.If):
            leave(node if called_name(node.test) == "TYPE_CHECKING" else None)
        elif isinstance(node, ast.Assign):
            leave(node if called_name(node.targets[0]) in ("__all__", "__slots__") else None)
    return found


def owners(tree: ast.Module) -> dict[ast.AST, str]:
    """The function or class that each node is in."""
    found: dict[ast.AST, str] = {}

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = f"{name}.{child.name}".strip(".") if isinstance(child, ast.FunctionDef | ast.ClassDef) else name
            found[child] = inner or "the module"
            visit(child, inner)

    visit(tree, "")
    return found


def in_bodies(tree: ast.Module) -> set[ast.AST]:
    """Nodes that are run when a function is called; not its decorators and defaults, and no class in it."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {inner for function in functions for statement in function.body for inner in ast.walk(statement)}


def described(old: ast.AST, new: Any) -> str:
    """The change in source text."""
    before, after = (shown(part) for part in (old, new))
    return f"{before}  →  {after}"


def shown(part: Any) -> str:
    if isinstance(part, list):
        return "; ".join(shown(each) for each in part)
    if isinstance(part, ast.If):
        return f"if {ast.unparse(part.test)}"
    if isinstance(part, ast.FunctionDef):
        return " ".join([*(f"@{ast.unparse(each)}" for each in part.decorator_list), f"def {part.name}"])
    text = " ".join(ast.unparse(part).split())
    return text if len(text) <= 110 else f"{text[:107]}..."


# -- recording --------------------------------------------------------------------------------------------------------
def record(tests: list[str]) -> None:
    """Run the tests once, and keep which of them runs which line of the package, and their seconds."""
    import coverage
    import pytest

    measured = coverage.Coverage(data_file=None, source=[str(ROOT / PACKAGE)], config_file=False)
    seconds: dict[str, float] = {}

    class Recorder:
        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
            measured.switch_context(item.nodeid)
            yield
            measured.switch_context("")

        def pytest_runtest_logreport(self, report: Any) -> None:
            failed = report.failed or report.skipped
            seconds[report.nodeid] = float("inf") if failed else seconds.get(report.nodeid, 0.0) + report.duration

    measured.start()
    pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[Recorder()])
    measured.stop()
    data = measured.get_data()
    lines: dict[str, dict[str, list[str]]] = {}
    for name in data.measured_files():
        found = data.contexts_by_lineno(name)
        kept = {str(line): [each for each in contexts if each] for line, contexts in found.items()}
        lines[os.path.relpath(name, ROOT)] = kept
    passed = {test: duration for test, duration in seconds.items() if duration != float("inf")}
    earlier = json.loads(RECORD.read_text()) if RECORD.exists() else {"seconds": {}, "lines": {}}
    recorded = {test.split("::")[0] for test in seconds}
    gone = {test for test in earlier["seconds"] if test.split("::")[0] in recorded} - set(passed)
    earlier["seconds"] = {test: each for test, each in earlier["seconds"].items() if test not in gone}
    for path, found in lines.items():
        merged = earlier["lines"].setdefault(path, {})
        for line, tests_there in found.items():
            merged[line] = sorted({*merged.get(line, []), *tests_there})
    RECORD.write_text(json.dumps({"seconds": {**earlier["seconds"], **passed}, "lines": earlier["lines"]}))
    print(f"{len(passed)} tests recorded in {RECORD}")


def covering(mutant: Mutant, known: dict[str, Any], most_seconds: float) -> list[str]:
    """Tests that run the changed lines, the quickest first, as many as fit into `most_seconds`."""
    lines, seconds = known["lines"].get(mutant.path, {}), known["seconds"]
    first, last = mutant.lines
    run_there = (each for line, each in lines.items() if first <= int(line) <= last)
    tests = {test for each in run_there for test in each if test in seconds}
    chosen, total = [], 0.0
    for test in sorted(tests, key=lambda test: seconds[test]):
        total += seconds[test]
        if chosen and total > most_seconds:
            break
        chosen.append(test)
    return chosen


# -- running ----------------------------------------------------------------------------------------------------------
class Campaign:
    """A plugin of pytest that runs the collected tests for every mutant, each in its own fork.

    Args:
        mutants: what to try.
        known: the record.
        most_seconds: seconds of tests per mutant at most, as recorded.
    """

    def __init__(self, mutants: list[Mutant], known: dict[str, Any], most_seconds: float) -> None:
        self.mutants, self.most_seconds = mutants, most_seconds
        self.tests = {mutant: covering(mutant, known, most_seconds) for mutant in mutants}

    def pytest_runtestloop(self, session: Any) -> bool:
        """In place of running the tests once."""
        if session.testsfailed:
            say(f"{session.testsfailed} test files cannot be collected: record again")
            return True
        items = {item.nodeid: item for item in session.items}
        paths = {str(ROOT / mutant.path) for mutant in self.mutants}
        functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
        self.functions = [each for each in functions if each.__code__.co_filename in paths]
        gc.collect()
        gc.freeze()  # forks share memory that nothing writes to
        counts: dict[str, int] = dict.fromkeys(("killed", "too slow", "equivalent", "survived", "unrun"), 0)
        same, started = equivalents(), time.time()
        for number, mutant in enumerate(self.mutants, 1):
            tests = [items[test] for test in self.tests[mutant] if test in items]
            fate = self.fate(mutant, tests, session) if tests else "unrun"
            if fate != "killed" and mutant.key in same:
                fate = "equivalent"
            counts[fate] += 1
            if fate in ("survived", "unrun"):
                say(f"{fate} ({len(tests)} tests): {mutant}")
            if number % 50 == 0:
                say(f"-- {number} of {len(self.mutants)}, {counts}, {time.time() - started:.0f} s")
        left = counts["survived"] + counts["unrun"]
        share = 100 * left / max(1, len(self.mutants))
        say(f"{len(self.mutants)} mutants: {counts}; {share:.1f} % survive; {time.time() - started:.0f} s")
        return True

    def fate(self, mutant: Mutant, tests: list[Any], session: Any) -> str:
        """What became of the mutant: "survived", "killed", or "too slow" (which is noticed as well)."""
        limit = 60.0 + 6.0 * self.most_seconds
        if not mutant.in_body:
            return survives_an_import(mutant, [test.nodeid for test in tests], limit)
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            code = 1
            try:
                with open(os.devnull, "w") as nowhere:
                    os.dup2(nowhere.fileno(), 1)
                    os.dup2(nowhere.fileno(), 2)
                gc.disable()
                exchange(mutant, self.functions)
                for test, following in zip(tests, [*tests[1:], None], strict=True):
                    test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
                    if session.testsfailed:
                        break
                code = int(session.testsfailed > 0)
            finally:
                os._exit(code)
        return waited_for(child, limit)


def exchange(mutant: Mutant, functions: list[FunctionType]) -> None:
    """Give the functions of the changed file their changed code, where they are: every holder has the new one."""
    path = str(ROOT / mutant.path)
    found = {(code.co_qualname, code.co_firstlineno): code for code in codes(compile(mutated(mutant), path, "exec"))}
    for function in functions:
        place = (function.__code__.co_qualname, function.__code__.co_firstlineno)
        if function.__code__.co_filename == path and place in found:
            function.__code__ = found[place]


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code of all functions in a piece of code."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from codes(inner)


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module of the package from a changed tree."""

    def __init__(self, mutant: Mutant) -> None:
        name = mutant.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        self.name, self.path, self.tree = name, str(ROOT / mutant.path), mutated(mutant)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The changed module's, and no other."""
        if fullname != self.name:
            return None
        places = [str(Path(self.path).parent)] if self.path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            fullname, self.path, loader=self, submodule_search_locations=places
        )

    def exec_module(self, module: Any) -> None:
        """Run the changed tree."""
        exec(compile(self.tree, self.path, "exec"), module.__dict__)


def survives_an_import(mutant: Mutant, tests: list[str], limit: float) -> str:
    """As `Campaign.fate`, of a change that acts when its module is imported: in a new process."""
    how = [sys.executable, __file__, "one", json.dumps(asdict(mutant)), *tests]
    child = subprocess.Popen(how, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    return waited_for(child.pid, limit)


def one(described: str, tests: list[str]) -> int:
    """Run the tests with a mutant that acts when its module is imported."""
    import pytest

    fields = json.loads(described)
    sys.meta_path.insert(0, Changed(Mutant(**{**fields, "lines": tuple(fields["lines"])})))
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))


def waited_for(child: int, limit: float) -> str:
    """What the exit status of a process group says (pytest's 4 and 5: its tests are gone), or that it took too long."""
    ends = time.monotonic() + limit
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return {0: "survived", 4: "unrun", 5: "unrun"}.get(os.waitstatus_to_exitcode(status), "killed")
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "too slow"


def say(line: str) -> None:
    """Past pytest's capture."""
    os.write(OUTPUT, f"{line}\n".encode())


def equivalents() -> dict[tuple[str, str, str], str]:
    """Reasons by (file, function, change)."""
    rows = EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else []
    parts = [[part.strip() for part in row.split(" ¦ ")] for row in rows if row.strip() and not row.startswith("#")]
    return {(path, function, change): reason for path, function, change, reason in parts}


def run(paths: list[str], sample: int, seed: int, most_seconds: float, only: str, again: str) -> None:
    """Try the mutants of the files, and print what survives."""
    import pytest

    known = json.loads(RECORD.read_text())
    files = [str(file.relative_to(ROOT)) for path in paths for file in files_in(ROOT / path)]
    every = [mutant for file in files for mutant in mutants_of(file) if only in str(mutant)]
    if again:
        lines = Path(again).read_text().splitlines()
        named = {line.partition(" tests): ")[2] for line in lines if "survived (" in line or "unrun (" in line}
        named = {without_line(text) for text in named}  # lines may have moved
        every = [mutant for mutant in every if without_line(str(mutant)) in named]
        same = equivalents()
        every = [mutant for mutant in every if mutant.key not in same]
    chosen = every if sample <= 0 or sample >= len(every) else random.Random(seed).sample(every, sample)
    chosen.sort(key=lambda mutant: (mutant.path, mutant.lines, mutant.node, mutant.which))
    say(f"{len(chosen)} of {len(every)} mutants in {len(files)} files")
    if not (only or again):
        there = {mutant.key for mutant in every}
        for path, function, change in equivalents():
            if path in files and (path, function, change) not in there:
                say(f"listed as equivalent, and there no more: {path} in {function}: {change}")
    campaign = Campaign(chosen, known, most_seconds)
    modules = sorted({test.split("::")[0] for tests in campaign.tests.values() for test in tests})
    quiet = ["-q", "--tb=no", "--disable-warnings", "-p", "no:cacheprovider", "-o", "timeout=0"]
    pytest.main([*quiet, *modules], plugins=[campaign])


def without_line(described: str) -> str:
    """The description of a mutant without its line number."""
    return re.sub(r":\d+ in ", " in ", described, count=1)


def files_in(path: Path) -> list[Path]:
    """The file, or all files of the folder."""
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record", help="run tests once, and keep which lines they run")
    recording.add_argument("tests", nargs=argparse.REMAINDER, help="files, and options of pytest")
    running = verbs.add_parser("run", help="try mutants")
    running.add_argument("paths", nargs="+")
    running.add_argument("--sample", type=int, default=0, help="that many mutants, drawn at random; 0: all")
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--seconds", type=float, default=20.0, help="of tests a mutant, as recorded")
    running.add_argument("--only", default="", help="mutants whose description holds this text")
    single = verbs.add_parser("one", help="run tests with one mutant, as `run` does for itself")
    single.add_argument("mutant")
    single.add_argument("tests", nargs="+")
    running.add_argument("--again", default="", help="only what survived in an earlier run's output, and is not listed")
    given = parser.parse_args()
    if given.verb == "record":
        record(given.tests)
    elif given.verb == "one":
        sys.exit(one(given.mutant, given.tests))
    else:
        run(given.paths, given.sample, given.seed, given.seconds, given.only, given.again)


if __name__ == "__main__":
    main()
