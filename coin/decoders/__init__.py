"""Decoders: each makes a missing expert's outputs from the coded network's and the others', one file each."""

from coin.decoders.alone import Alone
from coin.decoders.analytic import Analytic
from coin.decoders.decoder import Answers, Decoder, Fitted
from coin.decoders.direct import Direct
from coin.decoders.maps import from_tensors
from coin.decoders.ridge import Ridge

__all__ = ["Alone", "Analytic", "Answers", "Decoder", "Direct", "Fitted", "Ridge", "from_tensors"]
