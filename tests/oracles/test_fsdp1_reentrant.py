"""FSDP1 over frozen weights under reentrant checkpointing holds every layer's input and its gradient: shown with torch.

Its hook that reshards frozen weights is registered on the detached inputs of recomputed layers and keeps them, and with
them their gradients, until the backward is over. A fake process group of two, no GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from planner.formulas import activations as A
from planner.quantity import value_of

torch = pytest.importorskip("torch")
fsdp = pytest.importorskip("torch.distributed.fsdp")
wrap = pytest.importorskip("torch.distributed.fsdp.wrap")
fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")

from tests.oracles.test_loss_paths import Live  # noqa: E402 - only where torch is

HIDDEN, TOKENS, LAYERS = 64, 2048, 10
INPUT = 2 * HIDDEN * TOKENS


class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, frozen: bool):
        super().__init__()
        self.base, self.down, self.up = (
            torch.nn.Linear(i, o, bias=False) for i, o in ((HIDDEN, HIDDEN), (HIDDEN, 4), (4, HIDDEN))
        )
        self.base.weight.requires_grad = not frozen

    def forward(self, x: Any) -> Any:
        return x + torch.tanh(self.base(x) + self.up(self.down(x)))


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, frozen: bool, reentrant: bool):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(frozen) for _ in range(LAYERS))
        self.recomputed = functools.partial(
            torch.utils.checkpoint.checkpoint, use_reentrant=reentrant, preserve_rng_state=False
        )

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = self.recomputed(layer, x)
        return x


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    if torch.distributed.is_initialized():
        pytest.skip("another test's process group")
    torch.distributed.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=2)
    yield
    torch.distributed.destroy_process_group()


def peak(*, frozen: bool, reentrant: bool) -> float:
    """The backward's peak over what the forward left, in inputs of one layer."""
    trained = functools.partial(
        wrap.lambda_auto_wrap_policy,
        lambda_fn=lambda m: isinstance(m, torch.nn.Linear) and m.in_features != m.out_features,
    )
    layers = functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={Layer})
    model = fsdp.FullyShardedDataParallel(
        Model(frozen, reentrant).bfloat16(), device_id=torch.device("cpu"), use_orig_params=False,
        auto_wrap_policy=functools.partial(wrap._or_policy, policies=[trained, layers]),
    )  # fmt: skip
    x = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16).requires_grad_(True)
    with Live() as live:
        out = model(x)
        live.peak = before = live.now
        loss = out.float().sum()
        del out
        loss.backward()
    return float(live.peak - before) / INPUT


@pytest.mark.usefixtures("group")
@pytest.mark.filterwarnings("ignore")
def test_inputs_of_recomputed_layers_and_their_gradients_stay() -> None:
    usual = peak(frozen=True, reentrant=False)
    extra = peak(frozen=True, reentrant=True) - usual
    says = float(value_of(A.held_gradients(called="held_gradients", size=INPUT, layers=LAYERS))) / INPUT
    assert extra == pytest.approx(says, abs=2.5)
    assert abs(peak(frozen=False, reentrant=True) - usual) < 3  # nothing of the kind where the weights train
