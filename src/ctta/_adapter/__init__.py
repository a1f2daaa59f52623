"""The machinery behind `ctta.Adapter`: state, checkpoints, checks of input."""
