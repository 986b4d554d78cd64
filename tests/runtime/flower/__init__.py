import tacit.runtime.flower  # noqa: F401 - before anything of Flower, which reads settings then
