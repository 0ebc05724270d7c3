"""Keys of what is kept: equal only for what is equal, or refused."""

import functools
import json
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pytest
import torch
from problems import coding

from coin.codes import Average, Code, Coin, CoinKfac, Matched, TaskArithmetic
from coin.fisher import Directions, Exact, Probes
from coin.problem.recipes import lasts, recipe_of
from coin.problem.tuning import Tuner
from coin.training.distillation import Distillation


class Plain(Code):
    """No dataclass: its address was its key."""

    def __init__(self, scale):
        self.scale = scale

    def candidates(self):
        return [{"x": 1.0}, {"x": 2.0}]

    def encode(self, coding, **hyperparameters):
        return {k: v * self.scale for k, v in coding.params[0].items()}


@dataclass
class Declared(Plain):
    scale: float = 1.0


class OneOutput(Directions):
    """A subclass with an __init__ of its own, which printed the same for all outputs."""

    def __init__(self, output):
        object.__setattr__(self, "output", output)

    def count(self, outputs):
        return 1

    def of(self, inputs, outputs):
        direction = torch.zeros_like(outputs)
        direction[:, self.output] = 1
        yield direction


@dataclass(frozen=True)
class OneDeclared(OneOutput):
    output: int = 0


class Colour(str, Enum):
    RED = "red"


def test_a_code_that_declares_nothing_is_refused_rather_than_kept_under_its_address():
    with pytest.raises(ValueError, match="scale of it is no field"):
        Tuner("divergence").tune(Plain(1.0), coding(2))


def test_declared_codes_of_other_settings_are_kept_apart():
    problem = coding(2)
    one, two = (Tuner("divergence").tune(Declared(scale), problem).score for scale in (1.0, 0.5))
    assert one.coding_loss != two.coding_loss


def test_directions_with_hidden_settings_are_refused_and_declared_ones_kept_apart():
    problem = coding(2)
    with pytest.raises(ValueError, match="output of it is no field"):
        problem.fishers(OneOutput(0))
    first, second = (problem.fishers(OneDeclared(output))[0]["2.bias"] for output in (0, 1))
    assert not torch.equal(first, second)


UNEQUAL = [
    (Coin(0.1), Coin(0.2)),
    (Coin(), CoinKfac()),
    (Coin(fisher=Exact()), Coin(fisher=Probes(10))),
    (Coin(fisher=Probes(10, seed=1)), Coin(fisher=Probes(10))),
    (Matched(shifts=3), Matched(shifts=2)),
    (Matched(start=Coin(0.1)), Matched(start=Coin(0.2))),
    (Matched(start=Average()), Matched(start=TaskArithmetic(0.5))),
    (Distillation(start=Coin()), Distillation(start=Coin(balance="layer"))),
    (Distillation(tuner=Tuner(folds=2)), Distillation()),
    (torch.zeros(2), torch.zeros(3)),
    ([1, 2], [12]),
    ({"a": 1}, {"b": 1}),
    (Colour.RED, "blue"),
]


@pytest.mark.parametrize("pair", UNEQUAL, ids=str)
def test_different_things_have_different_recipes(pair):
    one, two = (json.dumps(recipe_of(value), sort_keys=True) for value in pair)
    assert one != two


def test_what_is_computed_on_the_way_changes_no_recipe():
    problem, code = coding(2), Matched()
    before = recipe_of(code)
    code.encode(problem, scale=1.0, strength=1.0)
    assert recipe_of(code) == before
    student = Distillation(trainer=print)
    assert recipe_of(student) == recipe_of(Distillation())


def test_equal_settings_have_one_recipe_whatever_holds_them():
    assert recipe_of(Coin(grid=[0.1, 1.0])) == recipe_of(Coin(grid=(0.1, 1.0)))


class Slotted:
    __slots__ = ("x",)

    def __init__(self):
        self.x = 1


REFUSED = [
    lambda: 1,
    functools.partial(print, 1),
    {1, 2},
    np.float32(1),
    np.zeros(2),
    1j,
    Slotted(),
    Plain,
    torch.nn.ReLU(),
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_what_cannot_be_keyed_is_refused(value):
    with pytest.raises(ValueError, match="cannot be told from another"):
        recipe_of(value)


def test_a_class_says_by_its_version_that_its_results_changed():
    @dataclass
    class Mended(Average):
        pass

    before = recipe_of(Mended())
    Mended.version = 2
    assert recipe_of(Mended()) != before


def test_two_classes_made_by_functions_are_two_though_they_have_one_name():
    def make(factor):
        @dataclass
        class Own(Average):
            def encode(self, coding, **hyperparameters):
                return {k: v * factor for k, v in super().encode(coding).items()}

        return Own()

    one, two = make(1), make(2)
    assert recipe_of(one) != recipe_of(two) and recipe_of(one) == recipe_of(one)
    assert not lasts(recipe_of(one)) and lasts(recipe_of(Average()))


def test_fields_that_are_said_to_change_nothing_change_nothing():
    @dataclass
    class Loud(Average):
        verbose: bool = field(default=False, compare=False)

    assert recipe_of(Loud(True)) == recipe_of(Loud(False))
