"""Codes: each makes a coded network's weights from the experts' own, one file each.

`coin.training.distillation` and `coin.training.parity` need Lightning, so they are imported by their own names.
"""

from coin.codes.average import Average
from coin.codes.base import Base
from coin.codes.code import Code
from coin.codes.coin import Coin
from coin.codes.dare import Dare
from coin.codes.iso import Isotropic
from coin.codes.kfac import CoinKfac
from coin.codes.matched import Matched
from coin.codes.regmean import RegMean
from coin.codes.task_arithmetic import TaskArithmetic
from coin.codes.ties import Ties
from coin.codes.tsv import TaskSingularVectors
from coin.codes.weighted import fisher_average

__all__ = [
    "Average",
    "Base",
    "Code",
    "Coin",
    "CoinKfac",
    "Dare",
    "Isotropic",
    "Matched",
    "RegMean",
    "TaskArithmetic",
    "TaskSingularVectors",
    "Ties",
    "fisher_average",
]
