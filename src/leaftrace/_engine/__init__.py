"""Replay of the training, and the passes over it that answer questions. Modules import only from those before them:

steps, fidelity, replay, row_effects, workspace, queries, methods, backward, leaf_space, costs, forward, removals,
refit, engine.
"""
