"""What the rows of one task can move of a long model, and the model of that part alone.

A network on bags of words begins with a linear layer that has a column of weights for every word. A
post has some fifty words of ten thousand, so a task's gradients are zero in nearly all columns: a
task that only takes steps from the billboard neither reads nor changes them. So it is handed the
part that its own words reach, as a model with fewer words, a shorter billboard and its rows with
the words numbered anew; it takes the same steps, by the same code, and sends a short vector.

Which words those are is a function of the task's own rows. Tasks are taken one at a time, as long
models are anyway, so no shape tells one task of another.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.local.bags import SELDOM
from tacit.local.batches import Batches
from tacit.local.chain import is_changed
from tacit.local.flat import FlatModel
from tacit.models.words import BagOfWords
from tacit.privacy.reach import Reach

LONG = 1 << 19
"""Models with fewer parameters are trained several at a time, and whole: that is faster."""


@dataclass(frozen=True)
class Reached:
    """A long model whose first layer has a column for every word: [height, words]."""

    model: FlatModel
    height: int
    words: int

    @classmethod
    def of(cls, model: FlatModel) -> Reached | None:
        """None for models of another kind, and for those that are not long."""
        network = model.training
        if type(network) is not nn.Sequential or len(network) < 2 or model.size < LONG:
            return None
        bag, table, *_ = (network[place] for place in range(len(network)))
        known = type(bag) is BagOfWords and type(table) is nn.Linear
        if not known or any(map(is_changed, (network, bag, table))):
            return None
        assert isinstance(table, nn.Linear)
        named = network.named_parameters(remove_duplicate=False)
        users = [name for name, parameter in named if parameter is table.weight]
        first = model.split(model.start)[0]
        # The table leads the flat vector, is learned, and nobody else reads it.
        leads = first.shape == table.weight.shape and table.weight.requires_grad
        if model.start.is_cuda or len(users) != 1 or not leads:
            return None
        return cls(model, *table.weight.shape)

    def pays(self, batches: Batches) -> bool:
        """Whether the rows of one task have few words of all."""
        return batches.x.numel() < SELDOM * self.words

    def by(self, x: Tensor) -> tuple[Reach, Tensor]:
        """What these rows of word ids reach, and the rows with those words numbered from 1."""
        outside = self.words + 1
        # The first word is there in any case: a table has at least one column.
        always = torch.tensor([0, 1, outside])
        ids = torch.cat([always, x.long().clamp(0, outside).flatten()])
        met, number = torch.unique(ids, return_inverse=True)
        reach = Reach(self.height, self.words, met[1:-1] - 1)
        return reach, number[len(always) :].view(x.shape).to(x.dtype)

    def within(self, reach: Reach) -> FlatModel:
        """The model with these words and no others. Steps begin at the billboard, so where it would
        start itself is not looked up: whoever asks finds no numbers there."""
        words = len(reach.columns)
        size = self.model.size - self.height * (self.words - words)
        start = self.model.start.new_tensor(torch.nan).expand(size)

        def fewer(network: nn.Module) -> nn.Module:
            assert isinstance(network, nn.Sequential)
            behind = (network[place] for place in range(1, len(network)))
            return nn.Sequential(BagOfWords(words), *behind)

        return self.model.narrowed(fewer, (self.height, words), start)
