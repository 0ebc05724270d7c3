"""The coded network's own answer, for every expert: what a merged model is usually asked for, and a control."""

from dataclasses import dataclass

from coin.decoders.decoder import Answers, Decoder, Fitted
from coin.decoders.maps import Choice, FittedLinear


@dataclass
class Direct(Decoder):
    alone = True

    def fit(self, answers: Answers) -> Fitted:
        never: dict[tuple[int, bool], Choice | None] = {(i, False): None for i in answers.experts}
        return FittedLinear(answers.generator, answers.classes, answers.classes, True, never, answers=answers)
