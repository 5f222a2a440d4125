"""`lightning-rl verify`: checks whether an experiment still learns like its reference runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lightning_rl.cli.parser import EXIT_CODES, Parser
from lightning_rl.cli.train import train
from lightning_rl.config.compose import parse_overrides
from lightning_rl.errors import ConfigError
from lightning_rl.reports.reference import (
    EVALUATION,
    MARKS,
    Comparison,
    ReferenceCurves,
    curve_at_marks,
    load_reference,
    reference_names,
)

__all__ = ["verify"]


def verify(arguments: Sequence[str]) -> int:
    """Compare an experiment with its reference curves: verify [ppo_cartpole [--run RUN_DIR] [key=value …]]."""
    parser = Parser(
        prog="lightning-rl verify",
        description=verify.__doc__,
        epilog="Exit code 1 if evaluations are below the reference band, as is one in eight runs of unchanged code.",
    )
    parser.add_argument("experiment", nargs="?", help="default: list the experiments with reference curves")
    parser.add_argument("overrides", nargs="*", help="keys of train, such as seed=7; default: an unused seed")
    parser.add_argument("--run", type=Path, help="compare an existing run instead of training one")
    options = parser.options(arguments)
    if options.experiment is None:
        parser.show(reference_names(), "\n".join(reference_names()))
        return EXIT_CODES["ok"]
    reference = load_reference(options.experiment)
    run_dir = options.run
    if run_dir is not None and options.overrides:
        raise ConfigError(f"--run compares a run as it is: leave out {' '.join(options.overrides)}")
    if run_dir is None:
        seed = max(reference.seeds) + 1
        named = parse_overrides([override for override in options.overrides if override.startswith("run_dir=")])
        run_dir = Path(str(named.get("run_dir", f"runs/verify/{options.experiment}_{seed}")))
        code = train([*reference.overrides, *EVALUATION, f"seed={seed}", f"run_dir='{run_dir}'", *options.overrides])
        if code != EXIT_CODES["ok"]:
            return code
    from lightning_rl.reports.run_records import read_run  # numpy

    run = read_run(run_dir)
    reference.check_comparable(run)
    comparison = reference.compare(curve_at_marks(run, reference.total_env_steps))
    parser.show(asdict(comparison), verdict(options.experiment, reference, comparison))
    return EXIT_CODES["ok" if comparison.ok else "failed"]


def verdict(experiment: str, reference: ReferenceCurves, comparison: Comparison) -> str:
    """The comparison as text."""
    runs = f"the {len(reference.seeds)} reference runs"
    return (
        f"{experiment}: {'inside the band' if comparison.ok else 'BELOW the band'} of {runs}\n"
        f"  last evaluation {comparison.last:.4g}; theirs {comparison.lowest:.4g} … {comparison.highest:.4g}, "
        f"with a margin of {comparison.margin:.3g}\n"
        f"  of {MARKS} evaluations {comparison.low} are below theirs, {comparison.high} above"
        + (
            ""
            if comparison.ok
            else "\n  one run in eight of an unchanged program is below: repeat it with other seeds (seed=…)"
        )
    )
