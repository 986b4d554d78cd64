"""Examples of the reference: scikit-learn's shape."""

# %%
import warnings

import numpy as np

from tacit import sklearn as shaped

draw = np.random.default_rng(0)
site = np.repeat([f"clinic-{k}" for k in range(30)], 20)
X = draw.normal(size=(600, 4))
effect = np.repeat(1 + 0.5 * draw.normal(size=(30, 4)), 20, axis=0)
y = (X * effect).sum(axis=1) + draw.normal(size=600)

# %% PrivateMultiTaskRegressor
reg = shaped.PrivateMultiTaskRegressor(epsilon=4.0).fit(X, y, tasks=site)
reg.predict(X[:3], tasks=site[:3])  # each row by its clinic's own model
print(reg.guarantee_)

# %% PrivateMultiTaskClassifier
clf = shaped.PrivateMultiTaskClassifier(epsilon=4.0).fit(X, y > 0, tasks=site)
clf.predict_proba(X[:3], tasks=["a new clinic"] * 3)  # by what is public

# %% PrivateMixedModel
mixed = shaped.PrivateMixedModel(epsilon=4.0).fit(X[::2], y[::2], tasks=site[::2])
mixed.coef_  # shared by all clinics, covered by ε

# %% MultiTaskRegressor
plain = shaped.MultiTaskRegressor().fit(X, y, tasks=site)  # classical, not private
plain.score(X, y, tasks=site)

# %% MultiTaskClassifier
shaped.MultiTaskClassifier().fit(X[:160], y[:160] > 0, tasks=site[:160]).predict(
    X[:3], tasks=site[:3]
)

# %% UnbookedTuningWarning
with warnings.catch_warnings(record=True) as said:
    shaped.PrivateMultiTaskRegressor(epsilon=2.0).fit(X, y, tasks=site)  # the same rows once more
[one.category is shaped.UnbookedTuningWarning for one in said]  # a choice is not covered
