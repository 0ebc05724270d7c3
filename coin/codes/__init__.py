"""Codes: each makes a coded network's weights from the experts' own, one file each."""

from coin.codes.average import Average
from coin.codes.code import Code
from coin.codes.coin import Coin, fisher_average

__all__ = ["Average", "Code", "Coin", "fisher_average"]
