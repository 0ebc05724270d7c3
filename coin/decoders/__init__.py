"""Decoders: each makes a missing expert's outputs from the coded network's and the others', one file each."""

from coin.decoders.analytic import Analytic
from coin.decoders.decoder import Answers, Decoder, Fitted
from coin.decoders.ridge import Ridge, from_tensors

__all__ = ["Analytic", "Answers", "Decoder", "Fitted", "Ridge", "from_tensors"]
