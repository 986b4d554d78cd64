"""What is believed of coefficients, beside draws of what rows and noise may have been."""

import torch

from tacit.local.flat import FlatModel
from tacit.methods import Mixed
from tacit.methods.base import Board
from tacit.methods.mixed import RESIDUAL
from tacit.methods.posterior import shrunk
from tacit.privacy.covariance import flatten

SAMPLING, BLUR = torch.tensor(0.02).double(), torch.tensor(0.003).double()


def some(least: float) -> torch.Tensor:
    """An information [4, 4] of which one direction tells as little as this."""
    vectors = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0)))[0]
    values = torch.tensor([1.0, 0.6, 0.3, least])
    return ((vectors * values) @ vectors.T).double()


def believed(information: torch.Tensor, target: torch.Tensor, blur: torch.Tensor):
    prior, middles = torch.full((1, 4), 0.5).double(), torch.zeros(1, 4).double()
    return shrunk(information, target, SAMPLING, blur * torch.eye(4), prior, middles)


def test_what_is_learnt_of_rows_is_what_estimates_share_with_their_errors():
    information, random = some(0.05), torch.Generator().manual_seed(1)
    errors, noise = torch.randn(2, 100_000, 4, generator=random).double()
    errors = errors @ (torch.linalg.cholesky(information) * SAMPLING.sqrt()).T
    released = errors + BLUR.sqrt() * noise
    # The mean of the posterior is linear in what was released.
    follows = torch.stack([believed(information, one, BLUR).beta for one in torch.eye(4).double()])
    shared = (released @ follows).T @ (errors @ torch.linalg.inv(information)) / len(errors)
    expected = (shared + shared.T) / 2
    found = believed(information, released[0], BLUR).learnt
    torch.testing.assert_close(found, expected, atol=4e-4, rtol=0.02)


def test_without_noise_all_that_is_off_was_learnt_of_rows():
    information = some(0.05)
    found = believed(information, torch.ones(4).double(), 0 * BLUR)
    # a wide prior hardly matters
    inverse = SAMPLING * torch.linalg.inv(information)
    kept = 0.5 * torch.linalg.inv(inverse + 0.5 * torch.eye(4)) @ inverse
    torch.testing.assert_close(found.learnt, kept, atol=1e-6, rtol=1e-4)


def test_a_direction_that_noise_made_tells_nothing_about_rows():
    """Its inverse would say that residuals are a thousand times smaller than errors, and so make
    their variance as large as is allowed."""
    found = believed(some(1e-5), torch.ones(4).double(), BLUR)
    assert SAMPLING * torch.linalg.inv(some(1e-5)).diagonal().max() > 100
    assert found.learnt.diagonal().max() < 0.1
    assert found.learnt.diagonal().min() > -1e-9


def test_residuals_are_corrected_by_little_where_a_direction_drowned():
    """The correction once was the inverse of a noisy information."""
    method, model = Mixed(crowd=600), FlatModel(torch.nn.Linear(3, 1), "regression")
    board = Board(method.board(model), 3, 0.01, "information")
    information = torch.diag(torch.tensor([1.0, 1e-6, 0.6, 0.3]).double())
    told = torch.cat([flatten(information), torch.ones(4).double()])
    after = method.publish(board, told)
    assert after["correction"].abs().max() <= 2 * after["covariance"].abs().max() / RESIDUAL
