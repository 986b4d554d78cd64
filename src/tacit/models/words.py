"""Logistic regression on bags of words, from rows that are short lists of word ids."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from tacit.data.federation import Federation
from tacit.errors import TacitError
from tacit.models.linear import zeros
from tacit.models.multihead import headed
from tacit.models.refuse import refuse_pixels


class BagOfWords(nn.Module):
    """Ids [B, L] to shares of the words [B, words]: how often a word occurs, over all words.

    0 is padding, 1 to `words` are the words of the vocabulary; anything above is a word outside it,
    which counts for the length of the text only. Rows stay lists in memory: only the rows of one
    step are spread out, and the weights then see one matrix product, which is as fast on a CPU as
    gathering the words' weights and takes less memory where there are many outputs.
    """

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = words

    def forward(self, x: Tensor) -> Tensor:
        ids = x.long()
        known = (ids > 0) & (ids <= self.words)
        length = (ids > 0).sum(dim=1, keepdim=True).clamp(min=1)
        shares = known.to(torch.get_default_dtype()) / length
        blank = shares.new_zeros(ids.shape[0], self.words)
        return blank.scatter_add(1, (ids - 1).clamp(0, self.words - 1), shares)


def bag(federation: Federation) -> nn.Module:
    """A weight for every word and output, and a bias; zeros, so that all start alike."""
    refuse_pixels(federation, "bag")
    if federation.words is None:
        raise TacitError(
            f"model 'bag' needs rows of word ids and their vocabulary, but rows have shape "
            f"{federation.input_shape}; use model 'linear', or load text by name"
        )
    make = partial(zeros, federation.words)
    network = nn.Sequential(BagOfWords(federation.words), make(federation.outputs))
    return headed(network, make, federation)
