import tacit.deploy.flower  # noqa: F401 - before anything of Flower, which reads settings then
