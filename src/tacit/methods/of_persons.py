"""What a method becomes where persons are the unit of privacy.

Most methods that can be bounded for persons stay as they are: a person does what a task would do.
Two have another form, because what their tasks contribute is made of all persons together:

    mixed   sums over persons of information and scores (`methods.mixed_persons`)
    pmtl    mean-regularised models whose every step is made of bounded persons and noised, as in
            Ziyu Liu, Shengyuan Hu, Zhiwei Steven Wu, Virginia Smith. "On Privacy and
            Personalization in Cross-Silo Federated Learning." NeurIPS 2022; this is `naive`'s rule,
            which is no warning at this unit: a model is made of many persons
"""

from __future__ import annotations

import dataclasses

from tacit.methods.base import Method
from tacit.methods.mixed import Mixed
from tacit.methods.mixed_persons import MixedOfPersons
from tacit.methods.naive import NaiveDP
from tacit.methods.pmtl import PMTL


def of_persons(method: Method) -> Method:
    """The form of this method for persons."""
    if type(method) is Mixed:
        return MixedOfPersons(slopes=method.slopes, judged=method.judged)
    if type(method) is PMTL:
        settings = {one.name: getattr(method, one.name) for one in dataclasses.fields(NaiveDP)}
        return NaiveDP(**settings)
    return method
