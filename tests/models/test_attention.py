"""GTrXL: which steps attention may read, masks of memory, and gates that start near the identity."""

from __future__ import annotations

import torch
from gymnasium import spaces
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.models import ModelCatalog
from lightning_rl.models.attention import GRUGate, RelativeAttention, TransformerNetwork

OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)


def network() -> TransformerNetwork:
    """A small one with weights that matter."""
    memory = {"attention_dim": 6, "attention_memory_inference": 4, "attention_memory_training": 4}
    torch.manual_seed(0)
    model = ModelCatalog.get_model(OBS, ACTIONS, 2, {"use_attention": True, "fcnet_hiddens": [5], **memory})
    assert isinstance(model, TransformerNetwork)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model


def run(model: TransformerNetwork, obs: Tensor, state: list[Tensor] | None = None) -> Tensor:
    """Outputs `[L, 2]` of one sequence `[L, 3]`."""
    state = [part.unsqueeze(0) for part in model.get_initial_state()] if state is None else state
    return model({"obs_flat": obs}, state, torch.tensor([len(obs)]))[0]


def test_a_step_reads_nothing_that_comes_later() -> None:
    model, obs = network(), torch.randn(6, 3)
    changed = obs.clone()
    changed[4] += 1
    assert_close(run(model, obs)[:4], run(model, changed)[:4])
    assert not torch.allclose(run(model, obs)[4:], run(model, changed)[4:])


def test_a_step_reads_the_memory_s_length_back_and_no_further() -> None:
    """One unit, memory 4: step 5 reads steps 1 to 5, not step 0."""
    model, obs = network(), torch.randn(6, 3)
    first, second = obs.clone(), obs.clone()
    first[0] += 1
    second[1] += 1
    assert_close(run(model, obs)[5], run(model, first)[5])
    assert not torch.allclose(run(model, obs)[5], run(model, second)[5])


def test_memory_before_the_episode_is_masked_not_zero() -> None:
    """Junk in entries that no step has filled changes nothing; junk in filled ones does."""
    model, obs = network(), torch.randn(2, 3)
    junk = torch.randn(1, 4, 6)
    empty, two = torch.zeros(1, 1), torch.full((1, 1), 2.0)
    assert_close(run(model, obs, [junk, empty]), run(model, obs))
    zeroed = junk.clone()
    zeroed[:, :2] = 0
    assert_close(run(model, obs, [junk, two]), run(model, obs, [zeroed, two]))
    assert not torch.allclose(run(model, obs, [junk, two]), run(model, obs))


def test_order_matters() -> None:
    """Without positions, attention over a set of earlier steps could not tell them apart."""
    model, obs = network(), torch.randn(4, 3)
    swapped = obs[[1, 0, 2, 3]]
    assert not torch.allclose(run(model, obs)[3], run(model, swapped)[3])


def test_relative_attention_is_the_formula_written_as_loops() -> None:
    """Score of query i and key j: (q + u) · k + (q + v) · W r(i − j), over √D, softmax over what is visible."""
    torch.manual_seed(0)
    attention = RelativeAttention(dim=4, num_heads=2, head_dim=3)
    with torch.no_grad():
        attention.content_bias.normal_()
        attention.position_bias.normal_()
    memory, steps = 2, 3
    keys = torch.randn(1, memory + steps, 4)
    queries = keys[:, memory:]
    i, j = torch.arange(memory, memory + steps).unsqueeze(1), torch.arange(memory + steps)
    visible = ((i - j >= 0) & (i - j <= memory)).unsqueeze(0)
    found = attention(queries, keys, i - j, visible)

    q = attention.query(queries)[0].view(steps, 2, 3)
    k, v = (part[0].view(-1, 2, 3) for part in attention.key_value(keys).chunk(2, dim=2))
    rates = torch.tensor([1.0, 0.01])
    expected = []
    for row in range(steps):
        heads = []
        for head in range(2):
            scores = []
            for column in range(row, row + memory + 1):
                angle = (row + memory - column) * rates
                r = attention.position(torch.cat([angle.sin(), angle.cos()])).view(2, 3)[head]
                u, w = attention.content_bias[head], attention.position_bias[head]
                scores.append((q[row, head] + u) @ k[column, head] + (q[row, head] + w) @ r)
            weights = (torch.stack(scores) / 3**0.5).softmax(0)
            heads.append(weights @ v[row : row + memory + 1, head])
        expected.append(attention.out(torch.cat(heads)))
    assert_close(found[0], torch.stack(expected), atol=1e-5, rtol=1e-4)


def test_a_gate_starts_as_nearly_the_identity_and_more_so_with_more_bias() -> None:
    torch.manual_seed(0)
    stream, branch = torch.randn(5, 8), torch.randn(5, 8)
    moved = [(GRUGate(8, bias)(stream, branch) - stream).abs().mean().item() for bias in (0.0, 2.0, 20.0)]
    assert moved[0] > moved[1] > moved[2] and moved[2] < 1e-6
