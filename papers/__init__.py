"""Scripts behind published tables and figures; ``foldwise reproduce NAME`` runs them."""
