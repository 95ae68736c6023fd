"""A session as a module of PyTorch: its states, its copies, and training in the loops of Lightning and fastai."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from nacre.runtime.torch_module import SessionModule, SessionOptimizer  # noqa: E402  # after the check that PyTorch is there

TEXT = """language 1
import "library/losses.nacre"
dim B in 1..64
block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs] = random_normal((outputs, inputs), seed) / sqrt(inputs)
  param bias: f32[outputs] = 0.0
  return x @ weight.T + bias
}
block Net(x: f32[B, 5]) -> f32[B, 3] {
  use hidden = Linear<5, 9>
  use answer = Linear<9, 3>
  return answer(tanh(hidden(x)))
}
train step(x: f32[B, 5], y: f32[B, 3], lr: f32) -> loss: f32 {
  use net = Net
  loss = mse(net(x), y)
  minimize loss with adamw(lr=lr)
}
model main(x: f32[B, 5]) -> f32[B, 3] {
  use net = Net
  return net(x)
}
"""
RANDOM = np.random.default_rng(0)
X = torch.from_numpy(RANDOM.standard_normal((32, 5)).astype(np.float32))
Y = torch.from_numpy(RANDOM.standard_normal((32, 3)).astype(np.float32))
BATCH = 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> nacre.Model:
    return nacre.compile(TEXT, tmp_path_factory.mktemp("module") / "net.so", opt_level=0)


@pytest.fixture
def module(model: nacre.Model) -> SessionModule:
    return SessionModule(model.session())


def expected_states(model: nacre.Model, rates: list[float]) -> dict[str, np.ndarray]:
    """The states after one epoch, with a learning rate for each batch."""
    session = model.session()
    for i, rate in enumerate(rates):
        rows = slice(i * BATCH, (i + 1) * BATCH)
        session.step(X[rows].numpy(), Y[rows].numpy(), rate)
    return dict(session.states)


def assert_states(module: Any, expected: dict[str, np.ndarray]) -> None:
    found = module.state_dict()
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name].numpy(), value)


def test_states_share_the_memory_of_the_session(module: SessionModule) -> None:
    weight = module.state_dict()["net.hidden.weight"]
    before = weight.clone()
    loss = module.step(X[:BATCH], Y[:BATCH], 0.01)
    assert isinstance(loss, torch.Tensor)
    assert not torch.equal(weight, before)
    predicted = module(X[:2])
    weight.zero_()
    assert not torch.equal(module(X[:2]), predicted)


def test_states_are_saved_and_loaded(module: SessionModule, model: nacre.Model, tmp_path: Path) -> None:
    module.step(X[:BATCH], Y[:BATCH], 0.01)
    parent = torch.nn.ModuleDict({"inner": module})
    torch.save(parent.state_dict(), tmp_path / "state.pt")
    other = SessionModule(model.session())
    torch.nn.ModuleDict({"inner": other}).load_state_dict(torch.load(tmp_path / "state.pt"))
    assert_states(other, dict(module.session.states))


def test_other_states_are_refused(module: SessionModule) -> None:
    whole = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(RuntimeError, match=r"Missing key.*net\.hidden\.bias"):
        module.load_state_dict({name: value for name, value in whole.items() if name != "net.hidden.bias"})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*extra"):
        module.load_state_dict(whole | {"extra": torch.zeros(1)})
    with pytest.raises(RuntimeError, match=r"expected f32\[9\]"):
        module.load_state_dict(whole | {"net.hidden.bias": torch.zeros(3)})


def test_a_copy_has_states_of_its_own(module: SessionModule) -> None:
    before = dict(module.session.states)
    copied = copy.deepcopy(module)
    copied.step(X[:BATCH], Y[:BATCH], 0.1)
    assert_states(module, before)


def test_parameters_are_the_states_of_inference(module: SessionModule) -> None:
    names = {name for name, _ in module.named_parameters()}
    assert names == {f"net.{layer}.{part}" for layer in ("hidden", "answer") for part in ("weight", "bias")}
    buffers = dict(module.named_buffers())
    assert set(buffers) == set(module.session.states) - names
    module.to("cpu").float()
    for move in (module.double, lambda: module.to("meta")):
        with pytest.raises(RuntimeError, match=r"state `.*` stays on the cpu"):
            move()
    module.step(X[:BATCH], Y[:BATCH], 0.1)
    assert float(buffers["adamw.net.hidden.bias.direction.steps"]) == 1


def test_entries_are_attributes(module: SessionModule, model: nacre.Model) -> None:
    assert module.step.name == "step"
    assert torch.equal(SessionModule(module.session, forward="main")(X), module(X))
    with pytest.raises(AttributeError, match="no_entry"):
        module.no_entry  # noqa: B018  # reading it is the test
    with pytest.raises(AttributeError, match="no entry `no_entry`"):
        SessionModule(model.session(), forward="no_entry")


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_lightning(module: SessionModule, model: nacre.Model, tmp_path: Path) -> None:
    """Manual optimization: schedulers change the rate, steps are counted, and a checkpoint has all states."""
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Net(lightning.LightningModule):  # type: ignore[misc, name-defined]  # it has no types if it is not installed
        def __init__(self, inner: SessionModule) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.inner = inner

        def configure_optimizers(self) -> Any:
            optimizer = SessionOptimizer(lr=0.1)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

        def training_step(self, batch: Any, index: int) -> None:
            optimizer = self.optimizers()
            loss = optimizer.step(lambda: self.inner.step(*batch, optimizer.optimizer.lr))
            self.log("loss", loss)
            self.lr_schedulers().step()

    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=BATCH)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(Net(module), batches)
    assert trainer.global_step == 4
    assert float(trainer.callback_metrics["loss"]) > 0
    expected = expected_states(model, [0.1, 0.05, 0.025, 0.0125])
    assert_states(module, expected)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    stored = torch.load(tmp_path / "last.ckpt")["state_dict"]
    assert {name.removeprefix("inner."): value.numpy().tolist() for name, value in stored.items()} == {
        name: value.tolist() for name, value in expected.items()
    }


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_fastai(module: SessionModule, model: nacre.Model, tmp_path: Path) -> None:
    """A callback takes the step in place of the forward and backward pass; the recorder sees the losses."""
    learner = pytest.importorskip("fastai.learner", reason="fastai is not installed")
    callbacks = pytest.importorskip("fastai.callback.core")
    data = pytest.importorskip("fastai.data.core")
    wrapper = pytest.importorskip("fastai.optimizer").OptimWrapper
    pytest.importorskip("fastai.callback.progress")  # defines `no_bar`

    class Step(callbacks.Callback):  # type: ignore[misc, name-defined]  # as above
        order = 70  # after the scheduler of the rate

        def before_batch(self) -> None:
            if self.training:
                rate = float(self.opt.hypers[-1]["lr"])
                self.learn.loss_grad = self.learn.loss = self.model.step(self.xb[0], self.yb[0], rate)
                raise callbacks.CancelBatchException

    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=BATCH)
    loaders = data.DataLoaders(batches, batches)
    trained = learner.Learner(
        loaders,
        module,
        loss_func=torch.nn.functional.mse_loss,
        opt_func=lambda groups, **_: wrapper(opt=SessionOptimizer()),
        cbs=[Step()],
        path=tmp_path,
    )
    with trained.no_bar(), trained.no_logging():
        trained.fit(1, lr=0.1)
    assert_states(module, expected_states(model, [0.1] * 4))
    assert float(trained.recorder.losses[-1]) > 0
    expected = torch.nn.functional.mse_loss(module(X), Y)
    assert abs(trained.recorder.values[-1][1] - float(expected)) < 1e-6
    pytest.importorskip("fastai.callback.schedule")  # defines `fit_one_cycle`, which also changes the momentum
    rates: list[float] = []
    taken = module.step
    module.__dict__["step"] = lambda x, y, rate: (rates.append(rate), taken(x, y, rate))[1]
    with trained.no_bar(), trained.no_logging():
        trained.fit_one_cycle(1, 0.1)
    assert rates[1] == pytest.approx(0.1) and rates[0] < 0.01 and len(trained.recorder.hps["mom"]) == 4
