"""The coded network's own answer, for every expert: what a merged model is usually asked for, and a control."""

from dataclasses import dataclass

import torch

from coin.decoders.decoder import Answers, Decoder, Fitted
from coin.decoders.linear import Correction, FittedLinear, outputs_of, squared


@dataclass
class Direct(Decoder):
    alone = True

    def fit(self, answers: Answers) -> Fitted:
        outputs, classes = outputs_of(answers), answers.classes
        none = Correction(
            outputs.new_zeros(classes, classes), outputs.new_zeros(classes), torch.zeros_like(outputs), 0.0
        )
        found = [Correction(none.weight, none.bias, none.held_out, squared(f - outputs)) for f in answers.experts]
        return FittedLinear(answers.beta, classes, True, found, answers)
