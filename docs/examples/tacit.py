"""Examples of the reference: names in tacit itself."""

# %%
import numpy as np

import tacit

draw = np.random.default_rng(0)
task = np.repeat([f"clinic-{k}" for k in range(30)], 20)
x = draw.normal(size=(600, 3))
y = (x * np.repeat(1 + draw.normal(size=(30, 3)), 20, axis=0)).sum(axis=1) + draw.normal(size=600)
clinics = tacit.data.from_arrays(x, y, task)

# %% Federation
isinstance(clinics, tacit.Federation)
len(clinics), clinics.kind, clinics.features  # (30, 'regression', ('x0', 'x1', 'x2'))
clinics.names[:2]  # the tasks, in the order in which rows of the table have them
clinics.assumptions  # what was taken to be public

# %% train, Run
run = tacit.train(clinics, privacy=tacit.Privacy(epsilon=4.0), out="runs/clinics")
print(run.verdict.sentences[0])
run.metrics["overall"]  # not covered by the guarantee
run.personal("clinic-3")  # a torch module for raw rows
run.predict(x[:5], tasks=task[:5])
run.report("report.html")

# %% load
again = tacit.load("runs/clinics")  # with its promise, scores, figures and models
again.guarantee.epsilon == run.guarantee.epsilon

# %% Privacy
tacit.Privacy(epsilon=1.0)  # the noise is calibrated from it; δ is 1 / (10 · tasks), at most 0.001
tacit.Privacy(noise=10.0, delta=1e-4)  # the noise is given, ε is reported
tacit.Privacy(epsilon=1.0, unit="person", persons=900)  # hides every person, not whole tasks

# %% Guarantee
print(run.guarantee)
run.guarantee.epsilon <= 4.0
run.guarantee.to_json()["assumptions"]

# %% SavedModels
saved = tacit.SavedModels.load("runs/clinics")
saved.predict(x[:5], tasks=task[:5])  # each row by its task's own model

# %% forecast
outlook = tacit.forecast(tasks=300, rows=20, features=10, epsilon=1.0)
print(outlook)
outlook.here.gain, outlook.tasks_needed

# %% mixed
table = {"clinic": task, "dose": x[:, 0], "age": x[:, 1], "effect": y}
fitted = tacit.mixed("effect ~ dose + age + (1 | clinic)", table, seed=0)  # without ε: REML
print(fitted.summary())

# %% tune
best = tacit.tune(
    clinics,
    tacit.FedAvg(),
    search={"clip": [0.3, 1.0], "lr": (0.02, 0.2)},
    privacy=tacit.Privacy(epsilon=8.0),
    rounds=3,
    expected_runs=2,
    out="runs/tuned",
)
best.guarantee.epsilon <= 8.0  # covers the choice, too

# %% audit
found = tacit.audit(
    clinics, tacit.FedAvg(), privacy=tacit.Privacy(epsilon=2.0), rounds=2, many_runs=500, seed=0
)
print(found)  # a lower bound on ε beside the promised one

# %% between_tasks
between = tacit.between_tasks(clinics, privacy=tacit.Privacy(epsilon=8.0), out="runs/related")
between.guarantee.epsilon <= 8.0
related = clinics.related(between.omega(rank=2))  # for method "related", in the same folder

# %% Publishing
averaged = tacit.Publishing(rule="momentum", lr=0.5, average=2)
tacit.train(
    clinics,
    tacit.FedAvg(),
    publishing=averaged,
    rounds=3,
    seed=0,
    baselines=False,
    personalise="none",
)

# %% Secure
summed = tacit.train(
    clinics,
    tacit.FedAvg(clip=0.5),
    privacy=tacit.Privacy(epsilon=8.0),
    curator=tacit.Secure(servers=3),
    rounds=2,
    seed=0,
    baselines=False,
    personalise="none",
)
print(summed.guarantee.trusts)

# %% Attendance
absent = tacit.Attendance(lost=0.2)  # a fifth of the clients is lost in each round
tacit.train(
    clinics,
    tacit.FedAMP(),
    attendance=absent,
    rounds=2,
    seed=0,
    baselines=False,
    personalise="none",
)

# %% TacitError
try:
    tacit.train(clinics, tacit.PMTL(), rounds=0)
except tacit.TacitError as error:
    print(error)  # one sentence: what was given, what was expected, what to do
