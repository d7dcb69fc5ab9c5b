"""Credit for trainers: one file a trainer, and what they share.

- `padded`: tensors of rows x positions and ids (`trainers_padded` holds the trainers' names for it);
- `verl`: every method as ``algorithm.adv_estimator=accredit/<id>``;
- `trl`: a mixin for TRL's GRPOTrainer;
- `nodes`: objects with token lists (verifiers, prime-rl, Tinker, rLLM, ART);
- `trackers`: scalars for experiment trackers;
- `export`: credit back into the formats that the rollouts came from.

Nothing is imported here, so that a trainer's workers load only what they use.
"""
