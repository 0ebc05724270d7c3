import lightning as L
import pytest
import torch

from coin.lab.artifacts import Workshop
from coin.lab.store import Store
from coin.problem.statistics import batch_norms
from coin.training.data import Digits
from coin.training.expert import ExpertModule, FineTuning
from coin.training.models import Small
from coin.training.pretraining import Rotations
from coin.training.trainers import trainer_recipe


def make_trainer(**settings):
    usual = dict(accelerator="cpu", devices=1, enable_progress_bar=False, enable_model_summary=False,
                 num_sanity_val_steps=0, use_distributed_sampler=False, deterministic=True)  # fmt: skip
    return L.Trainer(**{**usual, **settings})


def expert(folder, epochs=2, trainer=make_trainer, **settings):
    workshop = workshop_in(folder, trainer)
    base = workshop.base(10)
    return base, workshop.expert(base, Digits(labels=[0, 1]), FineTuning(epochs, 1e-3, **settings))


def workshop_in(folder, trainer=make_trainer, model=None, pretraining=None):
    return Workshop(
        store=Store(folder),
        model=model or Small(weights="none"),
        pretraining=pretraining or Rotations(Digits()),
        trainer=trainer,
    )


def test_batch_norm_stays_bit_identical_to_the_base(tmp_path):
    base, made = expert(tmp_path)
    before, after = base.tensors(), made.tensors()
    frozen = {
        name
        for name in before
        if "bn" in name or "running" in name or name.startswith(("stem.1", "blocks.1.shortcut.1"))
    }
    assert len(frozen) > 20
    assert all(torch.equal(before[name], after[name]) for name in frozen)
    assert not torch.equal(before["fc.weight"], after["fc.weight"])
    assert not torch.equal(before["stem.0.weight"], after["stem.0.weight"])


def test_train_mode_leaves_batch_norm_in_eval_mode():
    module = ExpertModule(Small(weights="none").build(10), 10, FineTuning(1)).train()
    assert module.network.training and not any(m.training for m in batch_norms(module.network))
    trained = {id(p) for group in module.configure_optimizers().param_groups for p in group["params"]}
    assert not any(id(p) in trained for m in batch_norms(module.network) for p in m.parameters())


def test_the_same_recipe_gives_the_same_bits_and_another_seed_does_not(tmp_path):
    (_, a), (_, b), (_, c) = (expert(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert a.key == b.key != c.key
    assert all(torch.equal(value, b.tensors()[name]) for name, value in a.tensors().items())
    assert not torch.equal(a.tensors()["fc.weight"], c.tensors()["fc.weight"])


class Stopped(Exception):
    pass


class StopAfter(L.Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.current_epoch == self.epoch:
            raise Stopped


def test_an_interrupted_training_ends_with_the_same_bits(tmp_path):
    def interrupted(callbacks=(), **settings):
        return make_trainer(callbacks=[*callbacks, StopAfter(2)], **settings)

    try:
        expert(tmp_path / "a", epochs=4, trainer=interrupted)
        raise AssertionError("not interrupted")
    except Stopped:
        pass
    assert list((tmp_path / "a" / "experts").glob(".*.unfinished/last.ckpt"))
    _, resumed = expert(tmp_path / "a", epochs=4)
    _, whole = expert(tmp_path / "b", epochs=4)
    assert all(torch.equal(value, whole.tensors()[name]) for name, value in resumed.tensors().items())


class StopBefore(L.Callback):
    """Between the last batch of an epoch and its end, or before a batch."""

    def __init__(self, epoch, batch=None):
        self.epoch, self.batch = epoch, batch

    def on_validation_start(self, trainer, pl_module):
        if trainer.current_epoch == self.epoch and self.batch is None:
            raise Stopped

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == (self.epoch, self.batch):
            raise Stopped


def test_a_training_killed_at_the_end_of_an_epoch_and_within_a_later_one_ends_with_the_same_bits(tmp_path):
    def workshop(folder, *stops):
        def make(callbacks=(), **settings):
            return make_trainer(callbacks=[*callbacks, *stops], **settings)

        found = workshop_in(tmp_path / folder, make)
        found.checkpoint_minutes = 1e-6  # after every batch
        return found

    def train(folder, *stops):
        shop, data = workshop(folder, *stops), Digits(labels=[0, 1], batch_size=32)
        return shop.expert(shop.base(10), data, FineTuning(5, 1e-3))

    for stop in (StopBefore(1), StopBefore(3, 2)):
        with pytest.raises(Stopped):
            train("a", stop)
    resumed, whole = train("a"), train("b")
    assert all(torch.equal(value, whole.tensors()[name]) for name, value in resumed.tensors().items())


def test_rotations_see_no_labels(tmp_path):
    a, b = Digits(), Digits()
    b.setup()
    b.train_set.labels = torch.zeros_like(b.train_set.labels)
    first = workshop_in(tmp_path, model=Small(), pretraining=Rotations(a, epochs=1)).base(10)
    second = workshop_in(tmp_path / "b", model=Small(), pretraining=Rotations(b, epochs=1)).base(10)
    assert all(torch.equal(value, second.tensors()[name]) for name, value in first.tensors().items())
    assert first.facts["rotation_accuracy"] > 30


def test_only_what_changes_the_weights_counts_in_a_recipe():
    settings = {"_target_": "x", "devices": 4, "precision": "bf16-mixed", "accumulate_grad_batches": 2}
    assert trainer_recipe(settings) == {"precision": "bf16-mixed", "accumulate_grad_batches": 2}


def test_a_training_killed_after_its_last_epoch_is_finished_by_the_next(tmp_path):
    def killed(callbacks=(), **settings):
        return make_trainer(callbacks=[*callbacks, StopAfter(1)], **settings)

    with pytest.raises(Stopped):
        expert(tmp_path, trainer=killed)
    _, made = expert(tmp_path)
    assert made.facts["accuracy"] > 0


def test_a_training_that_diverged_does_not_continue_from_its_ashes(tmp_path):
    workshop = workshop_in(tmp_path)
    base = workshop.base(10)
    for _ in range(2):
        with pytest.raises(ValueError, match="NaN or infinite weights"):
            workshop.expert(base, Digits(labels=[0, 1]), FineTuning(1, 1e30))


@pytest.mark.parametrize("mode", ["frozen", "affine", "trained"])
def test_what_of_batch_norm_is_trained_is_asked_for(tmp_path, mode):
    base, made = expert(tmp_path, batch_norm=mode)
    before, after = base.tensors(), made.tensors()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert ("stem.1.weight" in moved) == (mode != "frozen")
    assert ("stem.1.running_mean" in moved) == ("stem.1.running_var" in moved) == (mode == "trained")
    assert ("batch_norm" in made.recipe["finetune"]) == (mode != "frozen")  # older experts keep their keys


def test_another_way_to_train_batch_norm_is_refused():
    with pytest.raises(ValueError, match=r"finetune\.batch_norm=half: must be one of frozen, affine, trained"):
        FineTuning(1, batch_norm="half")
