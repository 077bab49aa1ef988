"""Replay of the training, and the passes over it. Modules import only from those before them:

leaf_equations, steps, fidelity, replay, row_effects, settings, workspace, queries, methods,
backward, leaf_space, costs, forward_block, forward, removals, refit, engine.
"""
