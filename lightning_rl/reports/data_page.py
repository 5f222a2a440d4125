"""The page about a data set: how its returns, lengths and actions are distributed, and what can be learned from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lightning_rl.reports.page import moment, template
from lightning_rl.reports.summaries import number
from lightning_rl.run_directory.process_identity import now
from lightning_rl.version import __version__

__all__ = ["data_page", "limits"]

FEW_EPISODES = 30
MOST_FIGURES = 24  # of entries of observations and actions
SPREAD = 0.1  # of the returns, relative to the largest; below it they count as equal


def data_page(summary: Mapping[str, Any]) -> str:
    """One HTML file without scripts and requests, of what `data.offline.summary.summary` returns."""
    about = summary["about"] or {}
    size = f"{summary['steps']:,} steps in {summary['episodes']:,} episodes"
    source = [f"{name} {about[name]}" for name in ("env", "policy", "seed") if about.get(name) is not None]
    coverage, (can, cannot) = list(covered(summary["coverage"])), limits(summary)
    return template("data.html.j2").render(
        heading=f"Data: {summary['name']}",
        about=" · ".join([size, *source, moment(now()), f"lightning_rl {__version__}"]),
        can=can,
        cannot=cannot,
        episodes=[
            (name, summary[name], bins(summary[name]["histogram"]))
            for name in ("returns", "lengths")
            if summary[name] is not None
        ],
        coverage=coverage[:MOST_FIGURES],
        left_out=len(coverage[MOST_FIGURES:]),
        counts={
            **{name: f"{summary[name]:,}" for name in ("steps", "episodes", "complete", "terminated")},
            "observations": summary["observation_space"],
            "actions": summary["action_space"],
        },
        damaged=summary["damaged"],
    )


def bins(histogram: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The label and share of each bin of a histogram."""
    low, width = histogram["low"], (histogram["high"] - histogram["low"]) / len(histogram["shares"])
    edges = [number(low + place * width) for place in range(len(histogram["shares"]) + 1)]
    return [(f"{edges[place]} to {edges[place + 1]}", share) for place, share in enumerate(histogram["shares"])]


def covered(coverage: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """The name of each entry of actions and observations, actions first, with the label and share of each bin."""
    for name, found in sorted(coverage.items(), key=lambda item: not item[0].startswith("actions")):
        if "counts" in found:
            total = sum(found["counts"].values())
            yield name, [(str(value), count / total) for value, count in found["counts"].items()]
            continue
        for place, histogram in enumerate(found["histograms"]):
            yield f"{name}[{place}]" if len(found["histograms"]) > 1 else name, bins(histogram)


def limits(summary: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Sentences about what the data can tell, and about what they cannot."""
    can: list[str] = []
    cannot: list[str] = []
    returns, complete = summary["returns"], summary["complete"]
    if returns is None:
        cannot.append("No episode is complete: what any behavior returns is unknown.")
    else:
        low, *_, high = returns["quantiles"]
        if high - low < SPREAD * max(abs(low), abs(high)):
            cannot.append(
                f"All returns are about the same ({number(low)} to {number(high)}): they hardly tell good behavior "
                "from bad, so learning from rewards gains little over behavior cloning (policy=bc)."
            )
        else:
            can.append(
                f"Returns differ ({number(low)} to {number(high)}, mean {number(returns['mean'])}): algorithms that "
                "read rewards, such as MARWIL and IQL, and data.top_fraction can do better than behavior cloning "
                "(policy=bc)."
            )
        if complete < FEW_EPISODES:
            cannot.append(f"The episodes are few ({complete} complete): intervals of estimated returns will be wide.")
    if summary["has_logp"]:
        can.append(
            "Probabilities of the recorded actions are known: lightning-rl estimate offers importance sampling and the "
            "doubly robust estimator, as long as the policy stays close to the recorded behavior."
        )
    else:
        cannot.append(
            "Probabilities of the recorded actions are unknown: lightning-rl estimate offers the direct method only."
        )
    for name, shown in covered(summary["coverage"]):
        empty = [label for label, share in shown if share == 0]
        if name.startswith("actions") and empty:
            some = f"{', '.join(empty[:3])}{', …' if len(empty) > 3 else ''}"
            cannot.append(
                f"{name}: {len(empty)} of {len(shown)} ranges or values never occur ({some}): what these actions lead "
                "to is extrapolated."
            )
    if cut := summary["episodes"] - complete:
        cannot.append(f"{cut} of {summary['episodes']} episodes are incomplete: their returns are unknown.")
    return can, cannot
