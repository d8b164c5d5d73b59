"""Moore, Bergeron, Bennett: Model selection for primal SVM. Machine Learning, 2011."""
