"""`lightning-rl video`: files, returns, grids, policies of all kinds, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightning_rl import errors
from lightning_rl.callbacks.rendering.video_files import has_mp4
from lightning_rl.schema import trust
from tests.cli.conftest import Command, not_refused
from tests.families import first
from tests.trained_runs import TrainedRuns, train


@pytest.fixture(scope="module")
def cartpole(trained_runs: TrainedRuns, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_runs.copy("ppo", tmp_path_factory.mktemp("runs") / "cartpole")


def frames(file: Path) -> tuple[int, tuple[int, int]]:
    with Image.open(file) as gif:
        return gif.n_frames, gif.size


def test_episodes_follow_each_other_in_a_gif_with_their_returns(cartpole: Path, command: Command):
    found = json.loads(command("video", str(cartpole), "--out", "deep/two.gif", "--episodes", "2", "--json").out)
    assert found["lengths"] == [int(value) for value in found["returns"]]
    assert found["lengths"][0] != found["lengths"][1]  # other seeds
    assert (found["cut"], found["env"], found["file"]) == (0, "CartPole-v1", "deep/two.gif")
    count, size = frames(Path("deep/two.gif"))
    assert count == sum(found["lengths"]) + 2  # and the two resets; an end that stands still is one longer frame
    assert size == (480, 320 + 18)
    again = command("video", str(cartpole), "--out", "two.gif", "--episodes", "2").out.splitlines()
    assert again[0] == "two.gif"
    assert again[1].startswith(f"return {found['returns'][0]:.6g}, {found['returns'][1]:.6g}, mean ")


def test_a_grid_shows_the_episodes_that_an_evaluation_counts(cartpole: Path, command: Command):
    grid = json.loads(command("video", str(cartpole), "--out", "grid.gif", "--grid", "--json", "--seed", "3").out)
    counted = json.loads(command("evaluate", str(cartpole), "--episodes", "3", "--json", "--seed", "3").out)
    assert (grid["returns"], grid["lengths"]) == (counted["returns"], counted["lengths"])
    count, size = frames(Path("grid.gif"))
    assert count == max(grid["lengths"]) + 1
    assert size == (240 * 2 + 4, (160 + 18) * 2 + 4)


def test_without_out_the_file_is_in_the_run(cartpole: Path, command: Command):
    outcome = command("video", str(cartpole), "--episodes", "1", "--seed", "7")
    file = cartpole / "videos" / f"last_seed7{'.mp4' if has_mp4() else '.gif'}"
    assert outcome.out.splitlines()[0] == str(file)
    assert file.stat().st_size > 1000


@pytest.mark.skipif(not has_mp4(), reason='pip install -e ".[video]"')
def test_an_mp4_has_a_picture_of_each_step(cartpole: Path, command: Command):
    import imageio.v2 as imageio

    found = json.loads(command("video", str(cartpole), "--out", "one.mp4", "--episodes", "1", "--json").out)
    with imageio.get_reader("one.mp4") as reader:
        assert reader.get_meta_data()["fps"] == 50
        assert sum(1 for _ in reader) == found["lengths"][0] + round(0.7 * 50)  # the last one stands still


def test_a_long_episode_is_cut_and_the_next_one_is_another(cartpole: Path, command: Command):
    outcome = command("video", str(cartpole), "--out", "cut.gif", "--episodes", "2", "--max-steps", "5")
    assert outcome.out.splitlines()[1:] == ["return 5, 5, mean 5.00", "length 5, 5 steps; 2 cut there (--max-steps)"]
    with Image.open("cut.gif") as gif:
        gif.seek(0)
        first = np.asarray(gif.convert("RGB"))
        gif.seek(6)
        assert not np.array_equal(first[:320], np.asarray(gif.convert("RGB"))[:320])


def test_bad_input_is_one_line(cartpole: Path, command: Command):
    Path("afile").touch()
    cases = {
        "--out one.avi": "one.avi: a video ends with .mp4 or .gif",
        "--episodes 17 --grid": "a picture has room for 16 episodes",
        "--episodes 0": "episodes=0",
        "--seed -1": "--seed: '-1'; expected a whole number, at least 0",
        "--fps 0": "fps=0.0; expected 0.01 to 1000 frames per second",
        "--fps 1e9": "fps=1000000000.0; expected 0.01 to 1000 frames per second",
        "--fps 1e-9": "fps=1e-09; expected 0.01 to 1000 frames per second",
        "--out afile/v.gif": "/afile' is a file",
        "--best": "holds no best_*.ckpt: nothing was evaluated",
    }
    assert not_refused(command, {f"video {cartpole} {options}": words for options, words in cases.items()}) == {}
    assert not Path("one.avi").exists()


@pytest.mark.parametrize(
    ("overrides", "trust"),
    first(
        2,
        [
            (("env=stateless_cartpole", "policy=ppo", "model=lstm"), ""),  # memory
            (("env=connect_four",), "pettingzoo"),  # turns and masks
            (("env=parametric_cartpole", "policy=dqn"), ""),  # masks
            (("env=pendulum", "policy=ppo", "policy.observation_filter=mean_std", "env.max_episode_steps=30"), ""),
            (("env=simple_tag",), "mpe2"),  # together, two policies
        ],
    ),
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_policies_of_all_kinds_are_recorded(overrides: tuple[str, ...], trust: str, command: Command, tmp_path: Path):
    run = train(tmp_path / "run", "experiment=none", "total_env_steps=100", *overrides)
    arguments = [str(run), "--episodes", "2", "--json", *(["--trust", trust] if trust else [])]
    found = json.loads(command("video", *arguments, "--out", "grid.gif", "--grid").out)
    counted = json.loads(command("evaluate", *arguments).out)
    assert (found["returns"], found["lengths"]) == (pytest.approx(counted["returns"]), counted["lengths"])
    assert frames(Path("grid.gif"))[0] > 5


def test_code_that_is_not_trusted_is_not_shown(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of another user's run; nor is its environment imported for an export."""
    (tmp_path / "own_envs.py").write_text(
        "import gymnasium as gym\ndef make(**given):\n    return gym.make('CartPole-v1', **given)\n"
    )
    run = train(tmp_path / "run", "env.id=own_envs:make", "total_env_steps=100")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))  # another user, and
    fresh = set[str]()  # a new process, in which no name was typed
    for module in (errors, trust):
        monkeypatch.setattr(module, "named_here", fresh)
    export = f"export {run} --format torch.export"
    assert not_refused(command, dict.fromkeys((f"play {run}", f"video {run}", export), "not trusted")) == {}
    assert not (run / "export").exists()
    assert command("video", str(run), "--trust", "own_envs", "--out", "own.gif", "--episodes", "1").code == 0
    assert command("export", str(run), "--format", "torch.export", "--trust", "own_envs").code == 0
