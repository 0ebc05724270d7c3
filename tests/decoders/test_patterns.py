"""Whatever has arrived: any subset of experts, several coded networks, and more queries while they come in."""

import itertools

import pytest
import torch
from safetensors.torch import load_file, save_file

from coin.decoders import Alone, Analytic, Answers, Direct, Ridge, from_tensors
from coin.decoders.maps import MOST_MAPS, Choice
from coin.decoders.moments import Moments
from coin.decoders.regression import Regression
from coin.generator import best_generator


def answers(n=3, coded=2, samples=60, classes=4, features=0, noise=0.1, copies=1, seed=0):
    torch.manual_seed(seed)
    generator = best_generator(coded, n) if coded > 1 else ((1 / n,) * n,)
    common = torch.randn(samples * copies, classes, dtype=torch.float64)
    experts = {i: common + torch.randn_like(common) for i in range(n)}
    outputs = [sum(b * experts[i] for i, b in enumerate(row)) for row in generator]
    outputs = [0.9 * f + noise * torch.randn_like(f) for f in outputs]
    sent = [torch.cat([f, torch.randn(len(f), features, dtype=torch.float64)], 1) for f in outputs]
    return Answers(sent, experts, generator, torch.arange(samples) * n // samples, copies)


def rows_of(given, rows):
    return Answers(
        [f[rows] for f in given.coded],
        {i: f[rows] for i, f in given.experts.items()},
        given.generator,
        given.owners[rows],
    )


@pytest.mark.parametrize("decoder", [Ridge(), Ridge(features=True), Alone(), Direct()], ids=repr)
def test_any_subset_of_experts_may_be_missing(decoder):
    given = answers(features=5)
    fitted = decoder.fit(given)
    for arrived in itertools.chain.from_iterable(itertools.combinations((0, 1), k) for k in (1, 2)):
        for count in range(3):
            for others in itertools.combinations((1, 2), count):
                coded = {r: given.coded[r] for r in arrived}
                decoded = fitted.decode(coded, {j: given.experts[j] for j in others}, 0)
                assert decoded.shape == given.experts[0].shape and torch.isfinite(decoded).all()


def test_more_answers_decode_better_than_fewer():
    given, fresh = answers(n=4, samples=400), answers(n=4, samples=400, seed=1)
    fitted = Ridge().fit(given)

    def error(coded, others):
        decoded = fitted.decode({r: fresh.coded[r] for r in coded}, {j: fresh.experts[j] for j in others}, 0)
        return float((decoded - fresh.experts[0]).square().mean())

    ladder = [error([0], []), error([0, 1], []), error([0, 1], [1]), error([0, 1], [1, 2]), error([0, 1], [1, 2, 3])]
    assert ladder == sorted(ladder, reverse=True)
    assert ladder[3] < 0.5 * ladder[0], "two missing, two coded: recovered"


def test_analytic_takes_any_two_of_two_coded_networks():
    given = answers(noise=0)
    given.coded = [f / 0.9 for f in given.coded]
    fitted = Analytic().fit(given)
    assert Analytic().most_missing(3, 2) == 2 and Ridge().most_missing(3, 2) == 3
    decoded = fitted.decode(given.arrived, {2: given.experts[2]}, 1)
    torch.testing.assert_close(decoded, given.experts[1], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fitted.held_out(0), given.experts[0], rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="2 experts are missing and 1 coded networks answered"):
        fitted.decode({1: given.coded[1]}, {2: given.experts[2]}, 1)
    with pytest.raises(ValueError, match=r"coded networks \[2\] answered; there are 0 to 1"):
        fitted.decode({2: given.coded[1]}, {2: given.experts[2]}, 1)


@pytest.mark.parametrize("features", [0, 90])  # fewer and more columns than rows: sums, and the rows themselves
def test_a_map_is_the_regression_that_chose_it(features):
    """The sums' solution against the eigenvectors', with weights of samples of other experts and scales of blocks."""
    given = answers(coded=1, features=features)
    decoder = Ridge(features=features > 0, strengths=[0.3], foreign=[0.3], shares=[0.3])
    fitted = decoder.fit(given)
    fitted.choices[1, True] = Choice(0.3, 0.3, 0.3)
    weight, bias = fitted.map((0,), (0, 2), 1)
    x = torch.cat([given.coded[0][:, :4], given.experts[0], given.experts[2], given.coded[0][:, 4:]], 1)
    plain = 3 * given.coded[0][:, :4] - given.experts[0] - given.experts[2]
    scale = torch.ones(x.shape[1], dtype=x.dtype)
    for block, share in ((slice(0, 12), 1.0), (slice(12, None), 0.3)):
        scale[block] = share / x[:, block].var(0, correction=0).sum().sqrt().clamp_min(1e-12)
    weights = (given.owners == 1).double() * 0.7 + 0.3
    truth, offset = Regression(x * scale, given.experts[1] - plain, weights).solution(0.3)
    torch.testing.assert_close(weight, truth * scale[:, None], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(bias, offset, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("decoder", [Ridge(), Ridge(features=True), Alone()], ids=repr)
def test_updating_is_fitting_on_everything(decoder):
    whole = answers(samples=120, features=9)
    order = torch.randperm(120, generator=torch.Generator().manual_seed(0))
    fitted, truth = decoder.fit(rows_of(whole, order[:50])), decoder.fit(whole)
    fitted.tensors()  # chooses
    for part in order[50:].split(13):
        fitted.update(rows_of(whole, part))
    truth.choices = fitted.choices
    assert all(seen.rows is None for seen in fitted.groups.values()), "there are more of them than columns"
    for i in range(3):
        for others in ({}, whole.others(i)):
            wanted = truth.decode(whole.arrived, others, i)
            torch.testing.assert_close(fitted.decode(whole.arrived, others, i), wanted, rtol=1e-9, atol=1e-9)


def test_traffic_of_one_expert_teaches_its_map_alone():
    """Routed queries have the answers of the coded network and of one expert."""
    given, traffic = (
        answers(n=2, coded=1, samples=20, noise=0.5),
        answers(n=2, coded=1, samples=2000, noise=0.5, seed=1),
    )
    fitted = Alone(features=False).fit(given)
    before = {i: fitted.decode(traffic.coded[0], {}, i) for i in range(2)}
    own = traffic.owners == 0
    fitted.update(Answers([traffic.coded[0][own]], {0: traffic.experts[0][own]}, given.generator, traffic.owners[own]))
    after = {i: fitted.decode(traffic.coded[0], {}, i) for i in range(2)}
    fresh = answers(n=2, coded=1, samples=500, noise=0.5, seed=2)
    errors = [float((d[~own] - traffic.experts[0][~own]).square().mean()) for d in (before[0], after[0])]
    assert errors[1] < errors[0] and torch.equal(before[1], after[1])
    assert torch.isfinite(fitted.decode(fresh.coded[0], {}, 0)).all()


@pytest.mark.parametrize("decoder", [Ridge(features=True), Alone()], ids=repr)
@pytest.mark.parametrize("samples", [30, 300])
def test_a_decoder_from_a_file_takes_any_pattern_and_goes_on_learning(decoder, samples, tmp_path):
    given = answers(features=6, samples=samples)
    fitted = decoder.fit(given)
    save_file(fitted.tensors(), tmp_path / "decoder.safetensors")
    again = from_tensors(load_file(tmp_path / "decoder.safetensors"))
    for each in (fitted, again):
        each.update(answers(features=6, seed=3))
    for others in ({}, {2: given.experts[2]}, given.others(0)):
        wanted = fitted.decode(given.arrived, others, 0)
        torch.testing.assert_close(again.decode(given.arrived, others, 0), wanted, rtol=1e-9, atol=1e-9)


def test_few_maps_are_kept(monkeypatch):
    monkeypatch.setattr("coin.decoders.maps.MOST_MAPS", 3)
    given = answers(n=4)
    fitted = Ridge().fit(given)
    for i in range(4):
        for count in range(4):
            fitted.decode(given.arrived, dict(list(given.others(i).items())[:count]), i)
    assert len(fitted.maps) == 3 < MOST_MAPS


def test_a_sample_and_its_copies_are_left_out_together():
    """Against refitting without each sample, all of its copies gone."""
    torch.manual_seed(0)
    samples, copies = 15, 3
    x, wanted = torch.randn(samples * copies, 6).double(), torch.randn(samples * copies, 2).double()
    weights = ((torch.arange(samples) < 9).double() * 0.7 + 0.3).repeat(copies)
    fit = Regression(x, wanted, weights, copies)
    ridge = float(fit.ridge(0.2))
    held_out = fit.held_out(0.2)
    assert held_out.shape == (samples, 2)
    for i in range(samples):
        rest = torch.arange(samples * copies) % samples != i
        design = torch.cat([x[rest], torch.ones(int(rest.sum()), 1, dtype=x.dtype)], 1)
        penalty = ridge * torch.eye(7, dtype=x.dtype)
        penalty[-1, -1] = 0
        solution = torch.linalg.solve(
            (design.T * weights[rest]) @ design + penalty, (design.T * weights[rest]) @ wanted[rest]
        )
        torch.testing.assert_close(held_out[i], x[i] @ solution[:-1] + solution[-1], rtol=1e-7, atol=1e-9)


def test_moments_are_the_sums_whichever_way_they_are_kept():
    rows = torch.randn(30, 7).double()
    few, many = Moments(7), Moments(7)
    few.add(rows[:5])
    for part in rows.split(4):
        many.add(part)
    assert few.rows is not None and many.rows is None and many.count == 30
    for found, truth in zip(few.sums(), (rows[:5].sum(0), rows[:5].T @ rows[:5]), strict=True):
        torch.testing.assert_close(found, truth)
    for found, truth in zip(many.sums(), (rows.sum(0), rows.T @ rows), strict=True):
        torch.testing.assert_close(found, truth)
    for seen in (few, many):
        again = Moments.of(seen.tensors())
        part = again.only(torch.tensor([5, 1]))
        torch.testing.assert_close(part.sums()[1], seen.sums()[1][[5, 1]][:, [5, 1]])
        torch.testing.assert_close(part.squares()[1], part.sums()[1].diagonal())


def test_what_a_fitted_decoder_is_updated_with_has_all_coded_networks():
    given = answers()
    with pytest.raises(ValueError, match="1 coded networks answered, expected all 2"):
        Ridge().fit(given).update(Answers(given.coded[:1], given.experts, given.generator))
