"""Hashes of tensors' contents, for recipes."""

import hashlib

import torch
from torch import Tensor


def digest_of(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return digest.hexdigest()
