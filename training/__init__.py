"""How a model is made: data sets, recipes, the fit, evaluation, reports."""
