"""Where methods run, round after round, with checkpoints.

    Course   what everybody knows about a run before it begins: stages, client steps, sizes
    Tasks    client steps on rows, states, measuring; all tasks in a simulation, one at a silo
    Rounds   draw, ask, sum, book, publish, save; in a simulation and at a coordinator

A simulation is `Tasks` and `Rounds` in one process. Rounds know their tasks by one question only:
`ask(board, cohort)`.
"""
