"""A paper on decomposition algorithms for semiparametric support vector machines."""
