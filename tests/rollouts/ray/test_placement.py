"""Placement of workers on the nodes of a cluster, which are processes here, and errors for too few resources."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest

from lightning_rl.errors import ConfigError
from lightning_rl.policies import PPO
from lightning_rl.rollouts import make_worker_set
from tests.envs.classic_control import CARTPOLE

pytestmark = [pytest.mark.ray(own_session=True), pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A head that samples nothing and two nodes for rollouts, of 2 CPUs each; gives its address."""
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 3})
    for _ in range(2):
        found.add_node(num_cpus=2, resources={"rollout": 2})
    try:
        yield found.address
    finally:
        found.shutdown()


def place_workers(address: str, num_workers: int, **ray: Any) -> Any:
    """A worker set on the cluster."""
    space = gym.make("CartPole-v1")
    policy = PPO(space.observation_space, space.action_space, model={"fcnet_hiddens": [8]})
    return make_worker_set(
        CARTPOLE,
        policy,
        num_workers=num_workers,
        worker_indices=range(num_workers),
        num_envs=1,
        fragment_length=4,
        ray={"address": address, "placement_timeout_s": 120, **ray},
    )


def nodes(workers: Any) -> list[tuple[str, bool]]:
    """Of each worker: its node, and whether that is one for rollouts."""

    def where(worker: Any) -> tuple[str, bool]:
        import ray

        own = ray.get_runtime_context().get_node_id()
        has = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == own)
        return own, "rollout" in has

    try:
        return workers.foreach_worker(where)
    finally:
        workers.stop()


def test_packed_workers_share_a_node(cluster: str) -> None:
    assert len({node for node, _ in nodes(place_workers(cluster, 2, placement="strict_pack"))}) == 1


def test_spread_workers_are_on_different_nodes(cluster: str) -> None:
    assert len({node for node, _ in nodes(place_workers(cluster, 3, placement="strict_spread"))}) == 3


def test_a_custom_resource_chooses_the_nodes(cluster: str) -> None:
    """The head has room for three; without the resource, packed workers would go there."""
    found = nodes(place_workers(cluster, 3, resources={"CPU": 1, "rollout": 1}))
    assert [rollout for _, rollout in found] == [True] * 3


def test_a_stopped_worker_set_releases_its_reservation(cluster: str) -> None:
    """Twice all that there is, one set after the other."""
    for _ in range(2):
        assert len(nodes(place_workers(cluster, 4, resources={"rollout": 1}))) == 4


def test_a_full_cluster_is_reported_in_time_with_requested_and_free_resources(cluster: str) -> None:
    started = time.monotonic()
    with pytest.raises(ConfigError) as raised:
        place_workers(cluster, 5, resources={"CPU": 1, "rollout": 1}, placement_timeout_s=3)
    assert time.monotonic() - started < 60
    message = str(raised.value)
    assert message.startswith(
        "no room in the Ray cluster within 3 s for 5 rollout processes with CPU 1, rollout 1 each"
    )
    assert "Lower workers.num_workers or workers.ray.resources" in message
    assert "free are CPU 7" in message
    assert "rollout 4" in message
    assert message.count("has CPU 2") == 2
    assert len(nodes(place_workers(cluster, 4, resources={"CPU": 1, "rollout": 1}))) == 4  # the request is withdrawn


def test_auto_joins_the_cluster_that_the_environment_names(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster)
    assert len(nodes(place_workers("auto", 1, resources={"rollout": 1}))) == 1


def test_an_unknown_placement_is_named(cluster: str) -> None:
    with pytest.raises(ConfigError, match=r"workers.ray.placement='spred'.*'spread'"):
        place_workers(cluster, 1, placement="spred")


def test_an_address_without_a_cluster_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"workers.ray.address=127.0.0.1:1025"):
        place_workers("127.0.0.1:1025", 1)
