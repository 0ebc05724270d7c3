"""Where things are computed, with fake CUDA tensors: they hold no values, and refuse to meet another device's."""

from functools import partial

import lightning as L
import torch
from torch import nn

from coin.training.data import Digits
from coin.training.models import SmallResNet
from coin.training.prediction import Asking, InputData, Inputs, Predictor
from coin.training.samples import Samples

CUDA = torch.device("cuda", 0)


class Movable(SmallResNet):
    """Fake parameters cannot change their device in place, as `Module.to` wants; new ones take their place."""

    def to(self, device):
        for module in self.modules():
            for name, p in module._parameters.items():
                module._parameters[name] = p if p is None else nn.Parameter(p.detach().to(device))
            for name, b in module._buffers.items():
                module._buffers[name] = b.to(device)
        return self


def test_images_are_prepared_and_answered_on_the_device_they_were_sent_to(fake):
    data, images = Digits(), torch.zeros(5, 1, 8, 8, dtype=torch.uint8)
    inputs = InputData(Inputs(images, data.transform), batch_size=3)
    batch = inputs.inputs[[0, 1, 2]]
    assert batch.dtype == torch.uint8, "bytes travel, not floats"
    prepared = inputs.on_after_batch_transfer(batch.to(CUDA), 0)
    assert prepared.device == CUDA and prepared.is_floating_point()
    module = Predictor(Movable().to(CUDA))
    module.predict_step(prepared, 0)
    assert module.outputs().shape == (3, 10) and not list(module.parameters()), "Lightning has nothing to move back"
    moved = Samples(data.transform(images), torch.zeros(5), torch.zeros(5)).to(CUDA)
    assert {moved.inputs.device, moved.labels.device, moved.owners.device} == {CUDA}


def test_a_trainer_prepares_images_behind_the_transfer():
    seen, data = [], Digits()

    def transform(batch):
        seen.append(batch.dtype)
        return data.transform(batch)

    images = torch.zeros(5, 1, 8, 8, dtype=torch.uint8)
    make = partial(L.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False)
    outputs = Asking(make).outputs(SmallResNet(), Inputs(images, transform), batch_size=3)
    assert outputs.shape == (5, 10) and seen == [torch.uint8] * 2


def test_one_trainer_asks_all_and_leaves_parameters_that_can_be_trained():
    made = []

    def make(**settings):
        made.append(L.Trainer(accelerator="cpu", devices=1, enable_progress_bar=False, **settings))
        return made[-1]

    asking, network = Asking(make), SmallResNet()
    inputs = Inputs(torch.randn(6, 3, 8, 8))
    first = asking.outputs(network, inputs, batch_size=4)
    fisher = asking.fisher(network, inputs, batch_size=4)
    torch.testing.assert_close(asking.outputs(network, inputs, batch_size=6), first, rtol=1e-4, atol=1e-5)
    assert len(made) == 1 and len(fisher) == len(list(network.parameters()))
    for tensor in (first, *fisher.values(), *network.parameters(), *network.buffers()):
        assert not tensor.is_inference()
    network(inputs.inputs).sum().backward()
