"""Checks the names of code in a checkpoint or in a run's config.yaml: only code that the user trusts is imported.

Names that the user types on the command line or passes in Python are trusted. Names in a *file* are checked before any
of them is imported: `PLACES` lists the keys where a file may name code, and the kind of object that belongs there. A
name must are in a home of its kind (this package, torch's optimizers, Lightning's callbacks, Gymnasium's wrappers) or
under a prefix that the user trusts. The object must also be defined under one of these, and be of the right kind,
before it is called. Text at any other key is never taken for a name of code.

While the objects described by a file are built, `import_object` also refuses paths outside of homes and trusted
prefixes (`restrict_imports`), in case a class resolves names at keys that `PLACES` does not list.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning_rl.errors import (
    ConfigError,
    is_dotted_path,
    looked_at_first,
    named_here,
    names_attribute,
    note_name,
    object_at,
    printable,
    short_repr,
)

__all__ = [
    "PLACES",
    "VARIABLE",
    "FileTrust",
    "NotSaved",
    "RegisteredName",
    "check_bounded",
    "names_code",
    "packages_in",
    "trust_names",
    "trusted_prefixes",
]

VARIABLE = "LIGHTNING_RL_TRUST"


@dataclass(frozen=True, slots=True)
class NotSaved:
    """What a checkpoint could not hold, in the place of the value: a function, an object.

    Args:
        what: description of the value.
    """

    what: str


class RegisteredName(str):
    """A name in a checkpoint that meant a creator given to `register_env` in the process that saved it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of object that a file may name at some key.

    Args:
        homes: modules and classes that a file may name without being trusted.
        bases: import paths of the classes from one of which a class has to derive; none: any class or function is
            accepted.
        functions: whether any class or function of a trusted package is accepted as well, as training accepts it: what
            it makes is checked then.
        registries: import paths of mappings (or functions that give them) whose keys are registered names instead of
            import paths.
    """

    homes: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    functions: bool = False
    registries: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """Description for messages."""
        classes = f"a subclass of {' or '.join(self.bases)}" if self.bases else ""
        others = "a class or function of a package that you trust" if self.functions or not self.bases else ""
        return ", or ".join(filter(None, (classes, others)))


OURS = ("lightning_rl",)
# Environments of other packages in the presets of `conf/env`, which a file may name where their package is installed.
IN_PRESETS = (
    "lbforaging:Foraging-8x8-2p-2f-coop-v3",
    "mpe2.simple_speaker_listener_v4",
    "mpe2.simple_spread_v3",
    "mpe2.simple_tag_v3",
    "pettingzoo.classic.connect_four_v3",
)
CATALOG = "lightning_rl.models.catalog:ModelCatalog"
REGISTERED_ENVS = "lightning_rl.envs.registry:registered_envs"

POLICY = Kind(OURS, ("lightning_rl.policies.policy_module:PolicyModule",))
MODEL = Kind(OURS, ("torch.nn:Module",), registries=(f"{CATALOG}._models",))
DISTRIBUTION = Kind(OURS, ("lightning_rl.models.distributions:ActionDistribution",), registries=(f"{CATALOG}._dists",))
PREPROCESSOR = Kind(
    OURS, ("lightning_rl.models.preprocessors:Preprocessor",), registries=(f"{CATALOG}._preprocessors",)
)
EXPLORATION = Kind(OURS, ("lightning_rl.exploration:Exploration",))
OPTIMIZER = Kind(("torch.optim",), ("torch.optim:Optimizer",))
ENV = Kind(
    OURS,
    ("gymnasium:Env", "lightning_rl.envs.multi_agent.multi_agent_env:MultiAgentEnv"),
    functions=True,
    registries=("gymnasium:registry", REGISTERED_ENVS),
)
WRAPPER = Kind(
    (*OURS, "gymnasium.wrappers"),
    ("gymnasium:Wrapper", "lightning_rl.envs.multi_agent.wrappers:MultiAgentWrapper"),
    functions=True,
)
DATA = Kind(OURS, ("lightning_rl.data.source:Source",))
DATASET = Kind(OURS, ("torch.utils.data:IterableDataset",))
FUNCTION = Kind()
MATCHES = Kind(OURS, ("lightning_rl.policies.matches:Matches",))
SCRIPT = Kind(("lightning_rl.envs.multi_agent.connect_four",))
LAUNCHER = Kind(("lightning_rl.runs.launchers.LocalLauncher", "lightning_rl.runs.launchers.RayTrainLauncher"))
LOGGER = Kind(
    (
        "lightning_rl.callbacks",
        "lightning.pytorch.loggers.CSVLogger",
        "lightning.pytorch.loggers.TensorBoardLogger",
        "lightning.pytorch.loggers.WandbLogger",
        "lightning.pytorch.loggers.csv_logs",
        "lightning.pytorch.loggers.tensorboard",
        "lightning.pytorch.loggers.wandb",
    ),
    ("lightning.pytorch.loggers:Logger",),
    functions=True,
)
CALLBACK = Kind(
    ("lightning_rl.callbacks", "lightning.pytorch.callbacks"), ("lightning.pytorch:Callback",), functions=True
)

ONE_POLICY = r"(policy|(policy\.)?policies\.[^.]+)"  # of one agent, or of several in a config or in a checkpoint

PLACES: dict[str, Kind] = {  # by dotted key, list indices as numbers
    rf"{ONE_POLICY}\.(_target_|class)": POLICY,
    r"(policy\.)?policies\.[^.]+(\.policy)?": POLICY,  # as it is typed; a run's own file has `_target_`
    rf"{ONE_POLICY}(\.config)?\.optimizer": OPTIMIZER,
    rf"{ONE_POLICY}(\.config)?\.custom_losses\.\d+(\.loss)?": FUNCTION,
    rf"{ONE_POLICY}\.function": SCRIPT,
    r"(policy\.)?policy_mapping": FUNCTION,
    r"(policy\.)?policy_mapping\._target_": MATCHES,
    r"(.*\.)?custom_model": MODEL,
    r"(.*\.)?custom_action_dist": DISTRIBUTION,
    r"(.*\.)?custom_preprocessor": PREPROCESSOR,
    r"(.*[._])?exploration\.type": EXPLORATION,
    r"(evaluation\.)?env\.id": ENV,
    r"(evaluation\.)?env\.wrappers\.\d+(\.wrapper)*": WRAPPER,
    r"(policies\.[^.]+\.)?data\._target_": DATA,
    r"(policies\.[^.]+\.)?data\.dataset": DATASET,
    r"(policies\.[^.]+\.)?data\.plan": FUNCTION,
    r"(policies\.[^.]+\.)?data\.(.*\.)?compute_reward": FUNCTION,
    r"rank_launcher(\._target_)?": LAUNCHER,
    r"logger\.[^.]+(\._target_)?": LOGGER,
    r"callbacks\.\d+(\.callback|\._target_)?": CALLBACK,
}
PARTLY = ("gymnasium", "lightning", "lightning_rl", "torch")  # packages in which only some parts are homes
HYDRA = ("_target_", "_partial_")  # keys by which Hydra configs name code; refused anywhere else
RELAYS = re.compile(r"(.*[:/])?GymV2[16]Environment(-v\d+)?")  # their keywords name other code to import

# Keywords of `start_ray`, which passes unknown ones to `ray.init`: a runtime_env, for example, is a command line.
RAY_NUMBERS = ("placement", "placement_timeout_s", "resources", "num_cpus", "num_gpus", "object_store_memory")
# Keywords of loggers that a file may give. Others are passed to `wandb.init`, whose settings can run programs, or name
# the server that MLflow sends the run to.
TRACKERS = {
    "WandbLogger": ("directory", "project", "name", "save_dir", "offline", "version", "prefix"),
    "MLFlowLogger": ("directory", "experiment_name", "run_name", "prefix"),
}
OWN_CLUSTERS = ("local", "auto")  # "auto" follows the user's machine or RAY_ADDRESS

WRITERS = re.compile(r"logger\.|callbacks\.|(evaluation\.)?env\.wrappers\.")  # whose keywords may be output paths
MOST_REPEATED = 100_000  # entries of containers referenced again, from the second reference on
# A field in a file name, as Lightning's ModelCheckpoint formats it. Attribute and item access could give any text, and
# so could a fill ("{step:.^3}") and a type that turns a number into a character ("{epoch:c}").
FIELD = re.compile(r"\{[\w/-]+(:0?\d{0,2}(\.\d{1,2})?[defg]?)?\}")
PATH = re.compile(r"([^\W\d]\w*)(\.\w+)*(:[^\s/]+)?")  # "my_pkg.envs:Maze", "my_pkg.envs.Maze", "my_pkg:Maze-v0"
PATH_KEY = re.compile(r"(.*\.)?\w*(dir|directory|path|folder)")


def trusted_prefixes(given: str | Sequence[str] = ()) -> tuple[str, ...]:
    """The import prefixes that the user trusts: the given ones and those of LIGHTNING_RL_TRUST.

    Raises:
        ConfigError: one is not a package or module, or is of Python's standard library, which holds no policy.
    """
    given = [given] if isinstance(given, str) else list(given)
    prefixes = [entry.strip() for entry in (*given, *os.environ.get(VARIABLE, "").split(",")) if entry.strip()]
    for prefix in prefixes:
        if _top(prefix) in sys.stdlib_module_names:
            raise ConfigError(
                f"trust={prefix!r}: Python's standard library holds no policy, model or environment, and functions "
                "that run any command; trust the package that holds yours"
            )
    return tuple(prefixes)


class FileTrust:
    """Checks the names in one file against what the file may name.

    Args:
        file: the file that messages name.
        trust: import prefixes that the user trusts ("my_pkg", "my_pkg.envs:MyEnv"), beside those of LIGHTNING_RL_TRUST;
            or the dotted key of a value that is not an import path ("workers.ray.address").
        error: what is raised.
        write_to: the directory that the file's loggers, callbacks and wrappers may write to; `None`: paths are not
            checked.
        own: whether a run of this user wrote the file as it is (`run_directory/signature.py`): it may then name
            whatever the run was started with.
    """

    def __init__(
        self,
        file: Any,
        trust: str | Sequence[str] = (),
        error: type[Exception] = ConfigError,
        write_to: str | Path | None = None,
        own: bool = False,
    ) -> None:
        self.file, self.error, self.write_to, self.own = file, error, write_to, own
        self.trust = trusted_prefixes(trust)

    def check(self, content: Mapping[str, Any]) -> None:
        """Refuse content with a name of code, or a path, that the file may not contain.

        Args:
            content: sections of a config, plain containers within bounds (`check_bounded`).

        Raises:
            Exception: `error`; names the file, the key, its value, and how to allow it. Also for a value that the file
                could not hold (`check_complete`).
        """
        self.check_complete(content)
        if self.own:
            return
        for key, value in _leaves(content):
            kind = _kind_at(key)
            if kind is not None and isinstance(value, str):
                self._check_name(key, value, kind)
            elif kind is None and any(part in HYDRA for part in key.split(".")):
                raise self.error(f"{self.file}: {key}={value!r} names code where no code belongs")
            elif self.write_to is not None and isinstance(value, str) and WRITERS.match(key):
                self._check_path(key, value)
        for name, logger in (content.get("logger") or {}).items():
            self._check_tracker(f"logger.{name}", logger)
        self._check_ray(content, "workers.ray", (*RAY_NUMBERS, "address"))
        self._check_ray(content, "rank_launcher", None)

    def check_complete(self, content: Mapping[str, Any]) -> None:
        """Refuse content that lacks a value, because a file cannot hold it: it would describe another run.

        Raises:
            Exception: `error`; names the file, the key, and how to give the value.
        """
        for key, value in _leaves(content):
            if isinstance(value, NotSaved):
                what = f"{printable(value.what)}, which no file can hold"
            elif isinstance(value, RegisteredName) and value not in object_at(REGISTERED_ENVS)():
                what = f"{short_repr(str(value))}, a name that register_env got in the process that saved it"
            else:
                continue
            ways = f"Algorithm.restore(path, config={_nested(key)})"
            if "env." in key:
                first = "register_env here, or " if isinstance(value, RegisteredName) else ""
                ways = f"{first}{ways} or env=FUNCTION, which makes the environment; or --env package.module:FUNCTION"
            raise self.error(f"{self.file}: {key} is {what}: give it again, by {ways}")

    @contextmanager
    def restrict_imports(self) -> Iterator[None]:
        """Context in which `import_object` refuses paths that lie neither in a home nor under a trusted prefix."""
        homes = {home for kind in PLACES.values() for home in kind.homes}

        def look(path: str) -> None:
            known = self.own or self._is_own(path) or _in_presets(path)
            if not known and not _under(path, (*homes, *self.trust)):
                raise self.error(self._distrust_message("it", path))

        before = looked_at_first.set(look)
        try:
            yield
        finally:
            looked_at_first.reset(before)

    def _check_name(self, key: str, path: str, kind: Kind) -> None:
        own = self._is_own(path)
        if kind is ENV and RELAYS.fullmatch(path) and not own and path not in self.trust:
            raise self.error(self._distrust_message(key, path))
        if not _is_path(path, kind) or (kind is ENV and _in_presets(path)):
            return  # a registered name, or an unknown one
        if self._is_registered(path, kind):
            return
        users = own or _under(path, self.trust)
        if not users and not _under(path, kind.homes):
            raise self.error(self._distrust_message(key, path))
        if kind is ENV and ":" in path and not names_attribute(path):
            return  # "my_pkg:My-v0", which Gymnasium imports
        if kind is ENV and ":" not in path and users:
            return  # a module with `parallel_env` or `env`
        try:
            found = object_at(path)
        except ConfigError as error:
            raise self.error(f"{self.file}: {key}={path!r} is not there: {error}") from error
        while isinstance(found, partial):
            found = found.func
        owner = found if hasattr(found, "__qualname__") else type(found)
        home = f"{getattr(owner, '__module__', None)}.{owner.__qualname__}"
        if not own and not _under(home, (*kind.homes, *self.trust)):
            raise self.error(self._distrust_message(key, path, home))
        is_class = isinstance(found, type)
        bases = tuple(map(object_at, kind.bases))
        fits = is_class and issubclass(found, bases) if bases else callable(found)
        theirs = not is_class or (_top(home) not in PARTLY and (own or _under(home, self.trust)))
        if not fits and not (kind.functions and users and callable(found) and theirs):
            raise self.error(f"{self.file}: {key}={path!r} is {home}; expected {kind.expected}")

    def _is_own(self, path: str) -> bool:
        """Whether the user of this process has typed this path, or passed this object."""
        return path.replace(":", ".") in named_here

    def _is_registered(self, name: str, kind: Kind) -> bool:
        return any(name in _entries_of(object_at(registry)) for registry in kind.registries)

    def _distrust_message(self, key: str, path: str, home: str = "") -> str:
        prefix = _top(home or path)
        message = f"{self.file}: {key}={path!r} names code that you have not trusted{home and f' ({home})'}"
        if prefix in sys.stdlib_module_names:
            return f"{message}: a function or class of Python's standard library, which no file may name"
        prefix = (home or path) if prefix in PARTLY or RELAYS.fullmatch(path) else prefix
        return (
            f"{message}; if you trust who wrote it: --trust {prefix}, {VARIABLE}={prefix} or "
            f"Policy.load(…, trust=[{prefix!r}])"
        )

    def _check_path(self, key: str, value: str) -> None:
        """Refuse a path outside of the run directory for the file's loggers, callbacks and wrappers."""
        if key not in self.trust and re.search(r"[{}]", FIELD.sub("", value)):
            raise self.error(
                f"{self.file}: {key}={value!r} has a field that is more than a name and a width, as {{step:05d}} is; "
                f"fields can make a path of characters that stand nowhere; allow it with --trust {key}"
            )
        plain = not (os.path.isabs(value) or value.startswith("~") or "://" in value or ".." in Path(value).parts)
        if key in self.trust or (plain and not PATH_KEY.fullmatch(key)):
            return
        inside = Path(self.write_to or "").resolve()
        if "://" in value or not Path(value).expanduser().resolve().is_relative_to(inside):
            raise self.error(
                f"{self.file}: {key}={value!r} is a path outside of {self.write_to}; if it shall be written to, allow "
                f"it with --trust {key}"
            )

    def _check_tracker(self, key: str, logger: Any) -> None:
        """Allow only harmless keywords of loggers that can run programs, or send the run to a server."""
        path = str(logger.get("_target_")) if isinstance(logger, Mapping) else ""
        if not re.search(r"[.:]", path) or _under(path, self.trust):
            return
        # A class may have further names, and subclasses: its own and its bases' names count, not the file's text.
        names = {base.__name__ for base in getattr(object_at(path), "__mro__", ())}
        known = next((allowed for name, allowed in TRACKERS.items() if name in names), None)
        if known is None:
            return
        for name in sorted({name for name, value in logger.items() if value is not None} - {"_target_", *known}):
            if f"{key}.{name}" not in self.trust:
                raise self.error(
                    f"{self.file}: {key}.{name}={logger[name]!r} decides where the run is sent, or may run programs; a "
                    f"file may give {', '.join(known)}; allow it with --trust {key}.{name}"
                )

    def _check_ray(self, content: Any, section: str, known: Iterable[str] | None) -> None:
        """Refuse the address of a foreign cluster, and settings of Ray that a file may not choose."""
        for name in section.split("."):
            content = content.get(name) if isinstance(content, Mapping) else None
        for name, value in content.items() if isinstance(content, Mapping) else ():
            foreign = (known is not None and name not in known) or (name == "address" and value not in OWN_CLUSTERS)
            if foreign and f"{section}.{name}" not in self.trust:
                raise self.error(
                    f"{self.file}: {section}.{name}={value!r} decides where and how processes run, which a file may "
                    f"not; allow it with --trust {section}.{name}"
                )


def packages_in(content: Mapping[str, Any]) -> list[str]:
    """The top-level packages in texts that could be import paths, except for those that every run imports."""
    texts = [text for _, text in _leaves(content) if isinstance(text, str)]
    tops = {match[1] for text in texts if (match := PATH.fullmatch(text)) and match[0] != match[1]}
    return sorted(tops - {*PARTLY} - sys.stdlib_module_names)


def names_code(key: str) -> bool:
    """Whether the value at a dotted key of a config is the name of a class or function."""
    return _kind_at(key) is not None


def trust_names(value: Any) -> None:
    """Register every text in a value that the user gave as a name of the user's own."""
    for _, name in _leaves({"": value}):
        if isinstance(name, str):
            note_name(name)


def check_bounded(content: Any, deepest: int = 64) -> None:
    """Refuse nested or repeated containers that would make a small file endless work to walk through.

    Args:
        content: plain containers. A container referenced once is bounded by the file's size; it may also be
            referenced repeatedly, or contain itself.
        deepest: allowed levels of nesting.

    Raises:
        ValueError: it is nested deeper, or repeats far more entries than the file has.
    """
    seen: set[int] = set()
    repeated, stack = 0, [(content, 0)]
    while stack:
        value, depth = stack.pop()
        if not isinstance(value, Mapping | list | tuple | set):
            continue
        repeated += len(value) if id(value) in seen else 0
        seen.add(id(value))
        if depth > deepest or repeated > MOST_REPEATED:
            raise ValueError(
                f"it has more than {deepest} levels of containers, or {MOST_REPEATED} entries that repeat others"
            )
        children = value.values() if isinstance(value, Mapping) else value
        stack += [(child, depth + 1) for child in children]


def _leaves(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Pairs of dotted key and value for everything that is not a container."""
    for name, child in content.items() if isinstance(content, Mapping) else enumerate(content):
        name = str(name).replace(".", "\N{ONE DOT LEADER}")  # a key with dots must not look like one of `PLACES`
        inner = f"{place}.{name}" if place else name
        if isinstance(child, Mapping | list | tuple):
            yield from _leaves(child, inner)
        else:
            yield inner, child


def _nested(key: str) -> str:
    """A dotted key as the nested mapping of `Algorithm(config=…)`; an entry of a list stands for the whole list."""
    head, is_entry, _ = re.sub(r"\.\d+(\..*)?$", "\n", key).partition("\n")
    value = "[…]" if is_entry else "…"
    for name in reversed(head.split(".")):
        value = f"{{{name!r}: {value}}}"
    return value


def _kind_at(key: str) -> Kind | None:
    return next((kind for place, kind in PLACES.items() if re.fullmatch(place, key)), None)


def _is_path(name: str, kind: Kind) -> bool:
    return ":" in name or (is_dotted_path(name) if kind is ENV else "." in name)


def _in_presets(path: str) -> bool:
    """Whether a path is in `IN_PRESETS`, and its package, if it is there, is not only in the working directory."""
    if path not in IN_PRESETS:
        return False
    installed = [place for place in sys.path if os.path.abspath(place) != os.getcwd()]
    return PathFinder.find_spec(_top(path), installed) is not None or find_spec(_top(path)) is None


def _top(path: str) -> str:
    return re.split(r"[.:]", path, maxsplit=1)[0]


def _under(path: str, prefixes: Iterable[str]) -> bool:
    """Whether an import path equals one of the prefixes or lies inside one."""
    path = path.replace(":", ".")
    return any(f"{path}.".startswith(f"{prefix.replace(':', '.')}.") for prefix in prefixes)


def _entries_of(registry: Any) -> Any:
    return registry() if callable(registry) else registry
