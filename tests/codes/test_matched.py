import copy

import cases
import pytest
import reference
import torch
from problems import coding, experts
from torch import nn

import coin
from coin.codes import Average, Coin, CoinKfac, Matched, RegMean
from coin.codes.layers import own_layers
from coin.codes.lockstep import schedule_for
from coin.codes.matched import LeastMove, Targets, layer_outputs, match_layers
from coin.decoders import Ridge
from coin.parameters import load, trainable
from coin.problem.coding import Coding
from coin.problem.moved import Moved
from coin.problem.tuning import Tuner


def least_move(x, y, strength, offset, part=7):
    move = LeastMove(len(x), offset)
    for rows in zip(x.split(part), y.split(part), strict=True):
        move.add(*rows)
    return move.solve(strength / len(x))


@pytest.mark.parametrize("shape", [(30, 5), (5, 30)])
@pytest.mark.parametrize("offset", [False, True])
def test_the_least_move_is_least_squares_with_a_ridge(shape, offset):
    torch.manual_seed(0)
    x, y = torch.randn(*shape, dtype=torch.float64) + 1, torch.randn(shape[0], 3, dtype=torch.float64)
    move, shift = least_move(x, y, 0.7, offset)
    ridge = 0.7 * (x - x.mean(0) if offset else x).square().sum() / len(x)
    free = move.clone().requires_grad_(), shift.clone().requires_grad_()
    loss = (x @ free[0] + free[1] - y).square().sum() + ridge * free[0].square().sum()
    slopes = torch.autograd.grad(loss, free)
    torch.testing.assert_close(slopes[0], torch.zeros_like(move), atol=1e-9, rtol=0)
    if offset:
        torch.testing.assert_close(slopes[1], torch.zeros_like(shift), atol=1e-9, rtol=0)
    else:
        assert not shift.any()


def test_a_large_mean_costs_the_least_move_no_precision():
    torch.manual_seed(0)
    x, y = torch.randn(900, 5, dtype=torch.float64) + 1e3, torch.randn(900, 3, dtype=torch.float64)
    truth = least_move(x, y, 0.7, True)[0]
    assert float((least_move(x.float(), y.float(), 0.7, True)[0] - truth).norm() / truth.norm()) < 1e-3


def moved(inputs, shifts=0):
    return Moved.copies_of([inputs], shifts)


def outputs(network, inputs):
    """What the layers of a network make of inputs, in their order."""
    schedule = schedule_for(network, moved(inputs), 4 << 30, 1)
    schedule.order = torch.arange(len(schedule.order))
    return layer_outputs(network, moved(inputs), schedule)


def match(network, inputs, wanted, strength):
    schedule = schedule_for(network, moved(inputs), 4 << 30, 1)
    schedule.order = torch.arange(len(schedule.order))
    schedule.steps = {name: schedule.steps[name] for name in wanted}
    match_layers(network, Targets(moved(inputs), schedule, wanted, {}), 1.0, strength)


def strided():
    return nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1, dilation=2), nn.ReLU(inplace=True), cases.Head(4))


def padded():
    return nn.Sequential(nn.Conv2d(2, 4, (3, 5), padding="same", bias=False), nn.Tanh(), cases.Head(4))


def residual():
    body = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2), nn.ReLU(inplace=True))
    return nn.Sequential(nn.Conv2d(2, 2, 1), cases.Residual(body), cases.Residual(body[:1]), cases.Head(2))


def of_images(make, layers):
    def case(seed):
        torch.manual_seed(seed)
        network = make().double().eval()
        assert {f"{layer}.weight" for layer in layers} <= set(outputs(network, IMAGES))
        return network, IMAGES

    return case


IMAGES = torch.randn(6, 2, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
CASES = {name: lambda seed, name=name: cases.make(name, seed) for name in ("mlp", "tokens_linear", "vit")}
CASES |= {
    name: lambda seed, name=name: cases.make(name, seed)
    for name in ("attention", "attention_seq_first", "cross_attention")
}
CASES["many_leading_dims"] = lambda seed: cases.make("many_leading_dims", seed)
CASES["many_positions"] = lambda seed: cases.make("many_positions", seed)
CASES["strided"] = of_images(strided, ["0", "2.fc"])
CASES["padded"] = of_images(padded, ["0", "2.fc"])
CASES["residual"] = of_images(residual, ["0", "3.fc"])


@pytest.mark.parametrize("case", CASES)
def test_one_pass_is_as_one_layer_after_the_other(case):
    network, inputs = CASES[case](0)
    other, _ = CASES[case](1)
    wanted = outputs(other, inputs)
    truth = reference.with_open_attention(copy.deepcopy(network))
    match(network, inputs, wanted, 0.5)
    reference.match_layers(truth, inputs, by_layer(wanted), 0.5)
    same(network, truth)


def by_layer(found):
    """By the names that layers have where attention is open."""
    return {name.replace("in_proj_", "in_proj."): value for name, value in found.items()}


def same(network, truth):
    for name, value in by_layer(trainable(network)).items():
        torch.testing.assert_close(value, trainable(truth)[name])


def test_attention_and_layer_norms_are_matched_in_the_order_they_run():
    found = list(outputs(*CASES["vit"](0)))
    block = [name.removeprefix("encoder.layers.encoder_layer_0.") for name in found if "layer_0." in name]
    inside = ["self_attention.in_proj_weight", "self_attention.out_proj.weight"]
    assert block == ["ln_1.weight", *inside, "ln_2.weight", "mlp.0.weight", "mlp.3.weight"]
    across = outputs(*CASES["cross_attention"](0))  # who looks at something else multiplies two inputs by one weight
    assert "attention.in_proj_weight" not in across and "norm.weight" in across


def encoder(seed):
    transformers = pytest.importorskip("transformers", reason="pip install -e '.[text]'")
    torch.manual_seed(seed)
    settings = dict(vocab_size=30, hidden_size=12, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
                    max_position_embeddings=10, num_labels=3, initializer_range=0.3)  # fmt: skip
    return transformers.BertForSequenceClassification(transformers.BertConfig(**settings)).double().eval()


def padded(more=0):
    ids = torch.randint(1, 30, (9, 6), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(6) < torch.tensor([6, 2, 3, 6, 4, 1, 5, 3, 2])[:, None]).long()
    return {"input_ids": torch.nn.functional.pad(ids * mask, (0, more)),
            "attention_mask": torch.nn.functional.pad(mask, (0, more))}  # fmt: skip


def test_a_padded_encoder_is_matched_as_one_layer_after_the_other_without_the_padding():
    network, inputs = encoder(0), padded()
    wanted = outputs(encoder(1), inputs)
    assert sum("LayerNorm" in name for name in wanted) == 5 and sum("self.query" in name for name in wanted) == 2
    truth = copy.deepcopy(network)
    match(network, inputs, wanted, 0.5)
    reference.match_layers(truth, inputs, wanted, 0.5)
    same(network, truth)


@pytest.mark.parametrize(
    "code", [Matched(scale=1.0), RegMean(0.9), CoinKfac(0.1)], ids=lambda code: type(code).__name__
)
def test_padding_changes_no_code(code):
    experts = [encoder(seed) for seed in (0, 1)]
    few, many = (code.encode(Coding(experts, None, [padded(more)]), **code.candidates()[0]) for more in (0, 4))
    for name, value in few.items():
        torch.testing.assert_close(many[name], value)


@pytest.mark.parametrize("case", ["strided", "residual", "many_leading_dims", "vit"])
@pytest.mark.parametrize("memory", [300_000, 150_000, 80_000])
def test_in_less_memory_it_is_as_one_layer_after_the_other_with_what_is_drawn(case, memory):
    network, inputs = CASES[case](0)
    other, _ = CASES[case](1)
    torch.manual_seed(0)
    inputs = (
        torch.cat([inputs] * 4)
        if not inputs.is_floating_point()
        else torch.cat([inputs + 0.1 * torch.randn_like(inputs) for _ in range(4)])
    )
    schedule = schedule_for(network, moved(inputs), memory, 1)
    wanted = layer_outputs(other, moved(inputs), schedule)
    truth = reference.with_open_attention(copy.deepcopy(network))
    match_layers(network, Targets(moved(inputs), schedule, wanted, {}), 1.0, 0.5)
    steps = by_layer(schedule.steps)
    reference.match_layers(truth, inputs[schedule.order], by_layer(wanted), 0.5, steps)
    same(network, truth)
    if memory < 100_000:
        assert len(schedule.parts) > 1


def test_less_memory_means_parts_that_begin_later_and_drawn_positions():
    torch.manual_seed(0)
    make = [
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(8),
        nn.Conv2d(32, 8, 3, padding=1),
        nn.ReLU(),
        cases.Head(8),
    ]
    network, inputs = nn.Sequential(*make).eval(), torch.randn(40, 3, 32, 32)
    first, second, head = schedule_for(network, moved(inputs), 4 << 20, 2).steps.values()
    assert first.samples < second.samples == head.samples == 40
    assert first.positions < 32 * 32 and second.positions == 16
    everything = schedule_for(network, moved(inputs), 4 << 30, 2)
    assert len(everything.parts) == 1
    assert all(step.samples == 40 and step.chosen is None for step in everything.steps.values())


def test_what_is_kept_of_layers_stays_within_the_memory():
    problem = of_images_problem()
    for memory in (1 << 20, 1 << 18, 1 << 16):
        targets = Targets.of(problem, shifts=3, memory=memory)
        kept = sum(4 * value.numel() for part in (targets.average, targets.base) for value in part.values())
        assert 0 < kept <= memory // 2


def of_images_problem():
    make = lambda: nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3), cases.Head(6))  # noqa: E731
    base, found = experts(2, make=make)
    return Coding([e.float() for e in found], None, [IMAGES.float()], base=base.float())


def test_less_memory_changes_the_code_a_little_and_no_memory_is_refused():
    problem = of_images_problem()
    whole, less = (Matched(memory=m).encode(problem, scale=1.0, strength=1.0) for m in (4 << 30, 1 << 18))
    start = Average().encode(problem)
    for name in ("0.weight", "2.weight"):
        assert not torch.equal(whole[name], less[name])
        assert (less[name] - whole[name]).norm() < (whole[name] - start[name]).norm()
    with pytest.raises(ValueError, match=r"code\.memory=0: must be a positive number"):
        Matched(memory=0)


def test_layers_that_depend_on_the_sample_are_refused():
    class Moody(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            x = self.first(x)
            return self.last(self.second(x) if self.ready else x)

    network, inputs = Moody(), torch.randn(6, 4)
    network.ready = True
    wanted = outputs(network, inputs)
    schedule = schedule_for(network, moved(inputs), 4 << 30, 1)
    network.ready = False
    with pytest.raises(ValueError, match=r"did not reach second\.weight"):
        match_layers(network, Targets(moved(inputs), schedule, wanted, {}), 1.0, 1.0)


def test_an_error_within_a_network_is_told_as_it_is():
    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            x = self.first(x)
            if self.fails:
                raise RuntimeError("on purpose")
            return self.last(x)

    network, inputs = Failing(), torch.randn(6, 4)
    network.fails = False
    wanted, schedule = outputs(network, inputs), schedule_for(network, moved(inputs), 4 << 30, 1)
    network.fails = True
    with pytest.raises(RuntimeError, match="on purpose"):
        match_layers(network, Targets(moved(inputs), schedule, wanted, {}), 1.0, 1.0)


def test_the_code_is_its_formula():
    base, found = experts(2, make=lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), cases.Head(3)))
    problem = Coding(found, (0.7, 0.3), IMAGES.split(4), base=base)
    code = Matched(scale=2.0, strength=0.5, start=Coin(0.01), shifts=2)
    inputs = moved(IMAGES, 2)[torch.arange(3 * len(IMAGES))]
    first, second, before = (outputs(network, inputs) for network in (*found, base))
    wanted = {k: z + 2 * (0.7 * first[k] + 0.3 * second[k] - z) for k, z in before.items()}
    start = Coin().encode(problem, damping=0.01)
    truth = load(copy.deepcopy(base), {k: z + 2 * (start[k] - z) for k, z in problem.base_params.items()})
    reference.match_layers(truth, inputs, wanted, 0.5)
    for name, value in code.encode(problem, **code.candidates()[0]).items():
        torch.testing.assert_close(value, trainable(truth)[name])


def test_other_coding_weights_on_the_same_problem_are_another_target():
    problem, code = coding(2), Matched(scale=1.0)
    code.encode(problem, scale=1.0, strength=0.5)
    problem.beta = (0.9, 0.1)
    for name, value in Matched().encode(coding(2, (0.9, 0.1)), scale=1.0, strength=0.5).items():
        torch.testing.assert_close(code.encode(problem, scale=1.0, strength=0.5)[name], value)


def test_samples_of_different_shapes_are_refused():
    base, found = experts(2, make=lambda: nn.Sequential(nn.Conv2d(2, 3, 3), cases.Head(3)))
    problem = Coding(found, None, [IMAGES, IMAGES[..., 1:]], base=base)
    with pytest.raises(ValueError, match="one shape"):
        Matched().encode(problem, scale=1.0, strength=1.0)


class Named(nn.Module):
    """Calls its layers by keyword."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(input=torch.tanh(self.first(input=x)))


def test_a_layer_called_by_keyword_is_matched_as_any_other():
    torch.manual_seed(0)
    network, inputs = Named().double(), torch.randn(9, 4, dtype=torch.float64)
    plain = nn.Sequential(copy.deepcopy(network.first), nn.Tanh(), copy.deepcopy(network.last))
    wanted = {name: value + 0.1 for name, value in outputs(network, inputs).items()}
    assert set(wanted) == {"first.weight", "last.weight"}
    match(network, inputs, wanted, 0.5)
    match(plain, inputs, dict(zip(["0.weight", "2.weight"], wanted.values(), strict=True)), 0.5)
    torch.testing.assert_close(network.last.weight, plain[2].weight)


def test_a_layer_with_a_forward_of_its_own_stays_where_it_is():
    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    assert not own_layers(nn.Sequential(Own(4, 3)))


def test_a_ridge_too_weak_to_solve_with_is_refused():
    with pytest.raises(ValueError, match="too weak"):
        least_move(torch.ones(40, 30), torch.randn(40, 3), 1e-9, False)


@pytest.mark.parametrize("case", ["twice", "tied"])
def test_weights_that_are_used_more_than_once_stay_where_they_are(case):
    network, inputs = cases.make(case)
    assert not outputs(network, inputs)


def test_a_layer_that_nothing_reaches_keeps_its_weight():
    network = nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False)).double()
    before = copy.deepcopy(network.state_dict())
    wanted = {"2.weight": torch.ones(6, 2, dtype=torch.float64)}
    match(network, torch.zeros(6, 4, dtype=torch.float64), wanted, 1.0)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_one_expert_is_matched_already():
    problem = coding(1, [1.0])
    for name, value in Matched().encode(problem, scale=1.0, strength=0.3).items():
        torch.testing.assert_close(value, problem.params[0][name])


def test_a_strong_ridge_leaves_the_scaled_start():
    problem = coding(2, [0.7, 0.3])
    average = Average().encode(problem)
    for name, value in Matched().encode(problem, scale=2.0, strength=1e12).items():
        if not name.endswith("bias"):  # a bias is free
            torch.testing.assert_close(value, 2 * average[name] - problem.base_params[name])


def test_matching_comes_closer_to_the_experts_average_on_the_samples_than_its_start():
    problem = coding(2)
    start = problem.loss(Average().encode(problem))
    assert problem.loss(Matched().encode(problem, scale=1.0, strength=0.3)) < start / 2


def test_candidates_are_judged_by_samples_they_were_not_fitted_on():
    problem = coding(2)
    code = Matched(strength=None, scale=1.0, grid=[1e-6, 1.0], judges=0)
    tuned = Tuner("divergence").tune(code, problem)
    asked = Tuner("divergence", folds=3).tune(code, problem)
    assert [c["divergence"] for c in tuned.candidates] == pytest.approx([c["divergence"] for c in asked.candidates])
    fitted = problem.score(problem.answers(problem.asked([code.encode(problem, scale=1.0, strength=1e-6)])))
    assert fitted.divergence < tuned.candidates[0]["divergence"] / 2


def test_after_cross_validation_the_chosen_fit_is_made_once(monkeypatch):
    calls = []
    real = Matched.encode
    monkeypatch.setattr(Matched, "encode", lambda *args, **kwargs: calls.append(1) or real(*args, **kwargs))
    Tuner("divergence").tune(Matched(), coding(2))
    assert len(calls) == 6 + 1  # scales, and the chosen one on all samples


def test_candidates_are_compared_by_the_first_fold_alone_and_without_copies(monkeypatch):
    base, found = experts(2, make=lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), cases.Head(3)))
    problem, calls = Coding(found, None, [IMAGES], base=base), []
    real = Targets.of.__func__

    def counted(cls, coding, shifts, memory):
        calls.append((sum(map(len, coding.batches)), shifts))
        return real(cls, coding, shifts, memory)

    monkeypatch.setattr(Targets, "of", classmethod(counted))
    tuned = Tuner("divergence").tune(Matched(shifts=2), problem)
    assert calls == [(len(IMAGES) - len(IMAGES[::3]), 0), (len(IMAGES), 2)]
    draft = Matched(shifts=0, judges=0, folds=3)
    first = Tuner("divergence").parts(draft, problem)
    seen, unseen = next(iter(first))
    for candidate in tuned.candidates[:2]:
        params = draft.encode(seen, scale=candidate["scale"], strength=1.0)
        score = unseen.score(unseen.answers(unseen.asked([params])))
        assert score.divergence == pytest.approx(candidate["divergence"])


def test_layers_are_asked_for_once_whatever_the_candidates(monkeypatch):
    calls = []
    import coin.codes.matched as matched

    real = matched.layer_outputs
    monkeypatch.setattr(matched, "layer_outputs", lambda *args: calls.append(1) or real(*args))
    Tuner("divergence").tune(Matched(folds=0), coding(2))
    assert len(calls) == 3  # two experts and the base


def test_images_are_matched_with_moved_copies_of_them():
    images = torch.arange(2 * 1 * 20 * 10, dtype=torch.float64).view(2, 1, 20, 10)
    more = moved(images, 2)[torch.arange(6)]
    assert more.shape == (6, 1, 20, 10)
    assert torch.equal(more[:2], images)
    for i, copy_ in enumerate(more[2:]):
        middle = images[i % 2, :, 2:-2, 1:-1]
        assert any(
            torch.equal(copy_[:, 2 + down : 18 + down, 1 + right : 9 + right], middle)
            for down in range(-2, 3)
            for right in range(-1, 2)
        )
    assert not torch.equal(more[2:4], images)
    assert torch.equal(moved(images, 2)[torch.tensor([5, 0, 3])], more[[5, 0, 3]])
    assert len(moved(images[:, 0], 2)) == 2  # no images
    assert torch.equal(moved(images)[torch.arange(2)], images)


@pytest.mark.parametrize("start", [None, Coin(0.01)])
def test_matched_for_people_with_their_own_networks(start):
    problem = coding(2)
    decoder = Ridge(features=True)
    coded = coin.encode(problem.experts, problem.batches, code=Matched(start=start), base=problem.base, decoder=decoder)
    fitted = coin.fit_decoder(decoder, coded, problem.experts, problem.batches)
    inputs = problem.batches[0]
    with torch.no_grad():
        answer = coin.WithFeatures(coded)(inputs)
        decoded = fitted.decode(answer, {1: problem.experts[1](inputs)}, missing=0)
        average = coin.decode(average_of(problem)(inputs), {1: problem.experts[1](inputs)}, problem.beta, 0)
        truth = problem.experts[0](inputs)
    assert (decoded - truth).norm() < (average - truth).norm() / 2


def average_of(problem):
    return coin.encode(problem.experts, problem.batches, code=Average())
