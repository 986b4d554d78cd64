"""Examples of the reference: where federations come from."""

# %%
import numpy as np

import tacit

draw = np.random.default_rng(0)

# %% from_table
table = {
    "school": [f"s{k % 5}" for k in range(40)],
    "hours": list(draw.gamma(4, 1, size=40)),
    "gender": ["f", "m"] * 20,
    "mark": list(draw.normal(60, 10, size=40)),
}
schools = tacit.data.from_table(table, task="school", target="mark")
schools.features  # ('hours', 'gender=m')

# %% from_arrays
x, y = draw.normal(size=(60, 4)), draw.integers(2, size=60)
sites = tacit.data.from_arrays(x, y, np.repeat(["north", "east", "south"], 20))
sites.kind  # 'binary'

# %% from_masks
images, masks = draw.normal(size=(6, 3, 32, 32)), draw.integers(2, size=(6, 32, 32))
scenes = tacit.data.from_masks(images, masks, ["a", "b"] * 3, classes=["wall", "floor"])
scenes.kind  # 'segmentation'

# %% from_npz
np.savez("sites.npz", x=x, y=y, tasks=np.repeat(["north", "east", "south"], 20))
tacit.data.from_npz("sites.npz", test=0.3)

# %% load
tacit.data.load("sites.npz")  # a file, or a name that `sources` lists
digits = tacit.data.load("digits")
len(digits), digits.kind

# %% sources, Source
[one.name for one in tacit.data.sources() if not one.needs]  # those that are there already

# %% read_table
with open("marks.csv", "w") as file:
    file.write("school;mark\nnorth;3,5\nsouth;n/a\n")
tacit.data.read_table("marks.csv")  # decimal commas where semicolons separate cells

# %% Schema
schema = schools.schema  # what was decided by looking at all rows; correct it, and give it back
print(schema.to_json())
tacit.data.from_table(table, schema=tacit.data.Schema.from_json(schema.to_json()))

# %% Preprocessing
schools.preprocessing.shift.shape  # how each task scales its own rows: [tasks, columns]
