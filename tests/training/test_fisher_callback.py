import copy
import subprocess
import sys

import cases
import lightning as L
import pytest
import torch
from conftest import ROOT
from reference import relative_error
from torch.utils.data import DataLoader, TensorDataset

from coin.fisher import diagonal_fisher
from coin.training.fisher_callback import FisherCallback
from coin.training.prediction import Asking, Inputs


class Module(L.LightningModule):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x)

    def predict_step(self, batch, batch_idx):
        return self(batch[0])

    def validation_step(self, batch, batch_idx):
        self(batch[0])


def trainer(**settings):
    return L.Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                     enable_model_summary=False, use_distributed_sampler=False, **settings)  # fmt: skip


def loader(inputs, batch_size=2):
    return DataLoader(TensorDataset(inputs, torch.zeros(len(inputs))), batch_size)


@pytest.mark.parametrize("loop", ["predict", "validate"])
@pytest.mark.parametrize("inference_mode", [True, False])
def test_in_any_loop_it_is_the_plain_function(loop, inference_mode):
    network, inputs = cases.make("norms", dtype=torch.float32)
    callback = FisherCallback()
    run = trainer(callbacks=[callback], inference_mode=inference_mode)
    getattr(run, loop)(Module(network), loader(inputs))
    assert relative_error(callback.fisher, diagonal_fisher(network, [inputs])) < 1e-5


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_in_any_precision_it_accumulates_in_float32_at_least(precision):
    network, inputs = cases.make("norms", dtype=torch.float32)
    truth = diagonal_fisher(network, [inputs])
    callback = FisherCallback()
    trainer(callbacks=[callback], precision=precision).predict(Module(network), loader(inputs))
    expected = torch.float64 if precision == "64-true" else torch.float32
    assert all(value.dtype == expected for value in callback.fisher.values())
    assert relative_error(callback.fisher, truth) < (1e-5 if precision == "64-true" else 0.1)


def test_its_state_resumes():
    network, inputs = cases.make("mlp")
    first, second = FisherCallback(network), FisherCallback(network)
    states = []

    class Save(L.Callback):
        def on_predict_batch_end(self, *args, **settings):
            states.append(copy.deepcopy(first.state_dict()))

    trainer(callbacks=[first, Save()], precision="64-true").predict(Module(network), loader(inputs))
    assert first.state_dict() == {}  # a finished loop leaves nothing to mix with the next
    second.load_state_dict(states[0])  # stopped after the first two samples
    trainer(callbacks=[second], precision="64-true").predict(Module(network), loader(inputs[2:]))
    assert relative_error(second.fisher, diagonal_fisher(network, [inputs])) < 1e-9


SCRIPT = """
import sys
sys.path[:0] = [{tests!r}]
import cases, lightning as L, torch
from coin.fisher import Exact, Probes
from coin.training.prediction import Asking, Inputs

def make(**settings):
    return L.Trainer(accelerator="cpu", devices={ranks}, strategy="{strategy}", enable_progress_bar=False,
                     enable_model_summary=False, use_distributed_sampler=False, **settings)

network, inputs = cases.make("norms", dtype=torch.float32)
inputs = inputs[:5]  # an odd number of samples for two ranks
asking = Asking(make)
found = {{"exact": asking.fisher(network, Inputs(inputs), Exact(), batch_size=3),
          "probes": asking.fisher(network, Inputs(inputs), Probes(5), batch_size=2),
          "outputs": asking.outputs(network, Inputs(inputs), batch_size=4)}}
if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
    torch.save(found, sys.argv[1])
"""


def test_two_ranks_give_the_result_of_one(tmp_path):
    found = {}
    for ranks, strategy in ((1, "auto"), (2, "ddp")):
        script = tmp_path / f"run{ranks}.py"
        script.write_text(SCRIPT.format(tests=str(ROOT / "tests"), ranks=ranks, strategy=strategy))
        command = [sys.executable, str(script), str(tmp_path / f"{ranks}.pt")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-3000:]
        found[ranks] = torch.load(tmp_path / f"{ranks}.pt", weights_only=True)
    for key in ("exact", "probes"):
        assert relative_error(found[2][key], found[1][key]) < 1e-5
    torch.testing.assert_close(found[2]["outputs"], found[1]["outputs"])


def test_outputs_come_in_the_order_of_the_samples():
    network, inputs = cases.make("mlp", dtype=torch.float32)

    def make(**settings):
        return L.Trainer(
            accelerator="cpu", devices=1, enable_progress_bar=False, enable_model_summary=False, **settings
        )

    with torch.no_grad():
        truth = network(inputs)
    asking = Asking(make)
    torch.testing.assert_close(asking.outputs(network, Inputs(inputs), batch_size=3), truth)
    assert set(asking.fisher(network, Inputs(inputs))) == {name for name, _ in network.named_parameters()}
