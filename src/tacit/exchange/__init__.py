"""The exchange: clients upload to a curator, which answers each of them personally.

    own rows ──► client ──► upload ──► curator: weights of who learns from whom
                   ▲                      │
                   └──── own answer ◄─────┘  (weighted sums of uploads)

This is the second way in which tasks talk. Nothing is noised: *it protects nothing between clients,
and the curator sees all models.* A method says with which weights uploads are mixed, and nothing
else; the mixing itself is one matrix product, done here, so that what an answer reveals can be
read off the weights (`reveals`), and so that the same product can be computed on secret shares.
"""

from tacit.exchange.mixing import Answer, guarded, mixed, normalised, reveals
from tacit.exchange.similarity import assignment_scores, cosines, distances, similarity
from tacit.exchange.uploads import Uploads

__all__ = [
    "Answer",
    "Uploads",
    "assignment_scores",
    "cosines",
    "distances",
    "guarded",
    "mixed",
    "normalised",
    "reveals",
    "similarity",
]
