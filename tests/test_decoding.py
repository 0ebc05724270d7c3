import pytest
import torch

from coin.decoding import decode


def test_decoding_inverts_the_code():
    outputs, beta = torch.randn(3, 5, 4, dtype=torch.float64), (0.5, 0.3, 0.2)
    coded = sum(b * f for b, f in zip(beta, outputs, strict=True))
    for i in range(3):
        others = {j: outputs[j] for j in range(3) if j != i}
        torch.testing.assert_close(decode(coded, others, beta, i), outputs[i])


@pytest.mark.parametrize(("others", "missing"), [({0}, 0), ({1, 2, 0}, 0), (set(), 1), ({0, 1}, 3), ({0, 1}, -1)])
def test_wrong_outputs_are_refused(others, missing):
    with pytest.raises(ValueError, match=r"needs the outputs|there are experts"):
        decode(torch.zeros(1, 2), {j: torch.zeros(1, 2) for j in others}, (0.5, 0.3, 0.2), missing)
