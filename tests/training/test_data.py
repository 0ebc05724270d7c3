import struct
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from coin.training.data import CIFAR10, MNIST, Digits, ImageFolder
from coin.training.data.sets import Batches
from coin.training.samples import draw


def test_digits_are_split_by_label_and_kept_in_memory():
    low, every = Digits(labels=[0, 1, 2, 3, 4]), Digits()
    low.setup(), every.setup()
    assert set(low.train_set.labels.tolist()) == {0, 1, 2, 3, 4}
    assert len(every.train_set) + len(every.test_set) == 1797
    assert every.train_set.images.dtype == torch.uint8
    assert (low.split, every.split, Digits(labels=[7, 1]).split) == ("0-4", "all", "1.7")


def test_a_batch_is_normalised_and_three_channelled():
    data = Digits(batch_size=32)
    data.setup()
    x, y = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
    assert x.shape == (32, 3, 8, 8) and y.shape == (32,)
    assert x.is_contiguous(memory_format=torch.channels_last)
    whole = data.transform(data.train_set.images)
    assert abs(float(whole.mean())) < 0.1 and abs(float(whole.std()) - 1) < 0.1
    assert Digits(image_size=16).transform(data.train_set.images[:2]).shape == (2, 3, 16, 16)


def test_order_depends_on_seed_and_epoch_not_on_the_number_of_ranks():
    one = Batches(10, 4, seed=3)
    first = list(one)
    one.set_epoch(1)
    assert sorted(index for batch in first for index in batch) == list(range(10)) and list(one) != first
    ranks = [Batches(10, 4, seed=3, rank=r, ranks=2) for r in range(2)]
    assert [sorted(a + b) for a, b in zip(*ranks, strict=True)] == [sorted(batch) for batch in first]


@pytest.mark.parametrize("labels", [[10], [-1, 2], []])
def test_labels_outside_the_data_are_refused(labels):
    with pytest.raises(ValueError, match=r"digits has the labels 0 to 9"):
        Digits(labels=labels).setup()


def test_the_draw_is_seeded_without_replacement_and_owned():
    low, high = Digits(labels=range(5)), Digits(labels=range(5, 10))
    drawn = draw([low, high], 21, seed=0)
    assert drawn.inputs.shape == (21, 3, 8, 8)
    assert (drawn.owners == 0).sum() == 11 and drawn.labels[drawn.owners == 0].max() <= 4
    assert torch.equal(draw([low, high], 21, 0).inputs, drawn.inputs)
    assert not torch.equal(draw([low, high], 21, 1).inputs, drawn.inputs)
    swapped = draw([high, low], 20, 0)
    assert torch.equal(swapped.inputs[:10], draw([low, high], 20, 0).inputs[10:])
    every = draw([low, high], 2 * len(high.train_set), 0)
    assert len(every.inputs[every.owners == 1].unique(dim=0)) > 0.9 * len(high.train_set)
    twins = draw([low, Digits(labels=range(5))], 40, 0)
    assert not torch.equal(twins.inputs[:20], twins.inputs[20:])


@pytest.mark.parametrize(("samples", "words"), [(1, "at least one sample each"), (10**6, "training images")])
def test_too_few_or_too_many_samples_are_refused(samples, words):
    with pytest.raises(ValueError, match=words):
        draw([Digits(labels=[0]), Digits(labels=[1])], samples, 0)


def write_cifar(folder, label=0, size=10_000):
    folder.mkdir(parents=True, exist_ok=True)
    record = torch.randint(0, 256, (10_000, 3073), dtype=torch.uint8)
    record[:, 0] = torch.arange(10_000) % 10
    record[0, 0] = label
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        (folder / name).write_bytes(record.numpy().tobytes()[: size * 3073])
    return record


def test_cifar10_from_its_binary_layout(tmp_path):
    record = write_cifar(tmp_path / "cifar-10-batches-bin")
    data = CIFAR10(tmp_path, labels=[1, 3])
    data.setup()
    assert len(data.train_set) == 10_000 and len(data.test_set) == 2_000
    assert torch.equal(data.test_set.images[0].flatten(), record[1, 1:])


@pytest.mark.parametrize(("settings", "words"), [({"label": 11}, "a label of 11"), ({"size": 9}, "27657 bytes")])
def test_damaged_cifar10_is_refused_by_name(tmp_path, settings, words):
    write_cifar(tmp_path / "cifar-10-batches-bin", **settings)
    with pytest.raises(ValueError, match=rf"batch_1\.bin is damaged: {words}"):
        CIFAR10(tmp_path).setup()


def idx(array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.numpy().tobytes()


def test_mnist_is_padded_to_32(tmp_path, monkeypatch):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    images, labels = torch.randint(0, 256, (50, 28, 28), dtype=torch.uint8), torch.arange(50, dtype=torch.uint8) % 10
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    data = MNIST(tmp_path)
    data.setup()
    x = data.transform(data.test_set.images)
    assert x.shape == (50, 3, 32, 32)
    black = (0 - torch.tensor(data.mean)) / torch.tensor(data.std)
    torch.testing.assert_close(x[0, :, 0, 0], black)


def test_missing_files_without_a_network_say_where_they_go(tmp_path, monkeypatch):
    def refuse(*args, **settings):
        raise OSError("no network")

    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", refuse)
    with pytest.raises(ValueError, match=r"put its files under .*MNIST/raw"):
        MNIST(tmp_path / "mine").setup()
    assert not list(tmp_path.iterdir())  # nothing is left of the attempt
    (tmp_path / "mine").mkdir()
    with pytest.raises(ValueError, match="no network"):
        MNIST(tmp_path / "mine").setup()
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


def test_one_process_downloads_at_a_time(tmp_path):
    inside = []

    class Slow(MNIST):
        def source(self, root, train, download):
            inside.append(1)
            time.sleep(0.05)
            assert len(inside) == 1, "two at once"
            inside.pop()
            return SimpleNamespace(data=torch.zeros(10, 28, 28, dtype=torch.uint8), targets=torch.arange(10))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: Slow(tmp_path / "new").setup(), range(4)))


def folder_of_images(root, parts=("",), classes=("ants", "bees", "cats"), each=12, size=(20, 30)):
    from PIL import Image

    for part in parts:
        for c, name in enumerate(classes):
            folder = root / part / name
            folder.mkdir(parents=True)
            for i in range(each):
                Image.new("RGB", size, (80 * c, 10 * i, 0)).save(folder / f"{i}.png")
    return root


@pytest.mark.parametrize("parts", [("",), ("train", "test"), ("train", "val")])
def test_a_folder_of_images_is_a_data_set(tmp_path, parts):
    data = ImageFolder(folder_of_images(tmp_path, parts), image_size=16)
    data.setup()
    assert data.num_classes == 3 and data.classes == ["ants", "bees", "cats"]
    total = len(data.train_set) + len(data.test_set)
    assert total == 36 * len(parts) and len(data.train_set) > len(data.test_set) * (parts == ("",))
    assert data.transform(data.test_set.images).shape[1:] == (3, 16, 16)
    reds = data.train_set.images[:, 0, 0, 0]
    assert torch.equal(reds, (80 * data.train_set.labels).to(torch.uint8))  # every image has its folder's label
    by_name = ImageFolder(tmp_path, labels=["bees", "cats"], image_size=16)
    by_number = ImageFolder(tmp_path, labels=[1, 2], image_size=16)
    by_name.setup()
    assert by_name.recipe() == by_number.recipe() and by_name.split == "1-2"
    assert set(by_name.train_set.labels.tolist()) == {1, 2}


def test_bad_folders_of_images_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        ImageFolder(tmp_path / "none")
    with pytest.raises(ValueError, match="0 class folders"):
        ImageFolder(tmp_path)
    folder_of_images(tmp_path / "a", ("train",))
    with pytest.raises(ValueError, match="but not both"):
        ImageFolder(tmp_path / "a")
    root = folder_of_images(tmp_path / "b")
    with pytest.raises(ValueError, match="no class dogs"):
        ImageFolder(root, labels=["dogs"])
    with pytest.raises(ValueError, match="labels 0 to 2"):
        ImageFolder(root, labels=[5], image_size=8).setup()
    bad = root / "ants" / "0.png"
    bad.write_bytes(bad.read_bytes()[:30])
    with pytest.raises(ValueError, match=r"0\.png is no readable image"):
        ImageFolder(root, image_size=8).setup()
    empty = tmp_path / "c"
    for name in "xy":
        (empty / name).mkdir(parents=True)
    with pytest.raises(ValueError, match="no training image"):
        ImageFolder(empty).setup()


def test_a_preparation_of_ones_own_is_part_of_the_recipe():
    class Inverted(Digits):
        def transform(self, images):
            return -super().transform(images)

    assert Inverted().recipe() != Digits().recipe()
