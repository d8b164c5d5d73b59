"""A storage of rows: in blocks, each in an array of its own."""

import numpy as np
import scipy.sparse as sp

from foldwise.design import ALL, Design


class RowBlocks(Design):
    """Rows in blocks of ``size``. Every product is a sum over blocks, or what they give one after the other."""

    is_dense = True
    size = 16

    def __init__(self, blocks, intercept):
        self.blocks = blocks
        super().__init__(sum(map(len, blocks)), blocks[0].shape[1], intercept, None, None)

    @classmethod
    def takes(cls, X):
        return isinstance(X, np.ndarray) and len(X) > cls.size

    @classmethod
    def of(cls, X, intercept, order=None):
        X = X if order is None else X[order]
        return cls.cut(np.column_stack([X, np.ones(len(X))]) if intercept else X, intercept)

    @classmethod
    def cut(cls, X, intercept):
        """From rows that have their column of ones."""
        starts = range(0, max(len(X), 1), cls.size)
        return cls([X[first : first + cls.size] for first in starts], intercept)

    @property
    def entries(self):
        return self.n_rows * self.n_columns

    def passes(self, rows):
        """Places among some rows, and the rows there, block by block; at least one, which may be empty."""
        index = np.arange(self.n_rows)[rows]
        for first in range(0, max(len(index), 1), self.size):
            place = slice(first, first + self.size)
            yield place, self.dense(index[place])

    def times(self, V):
        return np.concatenate([X @ V for _, X in self.passes(ALL)])

    def back(self, U):
        return sum(X.T @ U[place] for place, X in self.passes(ALL))

    def decisions(self, W, rows=ALL):
        return np.concatenate([W @ X.T for _, X in self.passes(rows)], axis=1)

    def pull(self, U, rows=ALL):
        return sum(U[:, place] @ X for place, X in self.passes(rows))

    def gram(self, weight=None, rows=ALL):
        passes = self.passes(rows)
        return sum(X.T @ (X if weight is None else X * weight[place][:, None]) for place, X in passes)

    def sweep(self, weight, lines, rows=ALL):
        return self.gram(weight, rows), self.pull(lines, rows)

    def kernel(self, some, others, scale):
        d = self.n_features
        return (self.dense(some)[:, :d] / scale) @ self.dense(others)[:, :d].T

    def row_squares(self, factor, rows=ALL):
        return np.concatenate([X[:, : self.n_features] ** 2 @ factor for _, X in self.passes(rows)])

    def column_squares(self, weight):
        return sum((X**2).T @ weight[place] for place, X in self.passes(ALL))

    def row_norms(self):
        return np.sqrt(np.concatenate([np.sum(X**2, axis=1) for _, X in self.passes(ALL)]))

    def column_statistics(self, parts):
        blocks = [X[:, : self.n_features] for rows in parts for _, X in self.passes(rows)]
        count = sum(map(len, blocks))
        mean = sum(X.sum(axis=0) for X in blocks) / count
        return mean, sum(((X - mean) ** 2).sum(axis=0) for X in blocks) / count

    def take(self, rows, features=False):
        X = self.dense(rows)
        return self.cut(X[:, : self.n_features], False) if features else self.cut(X, self.intercept)

    def dense(self, rows=ALL):
        index = np.arange(self.n_rows)[rows]
        block, out = index // self.size, np.empty((len(index), self.n_columns))
        for b in np.unique(block):
            out[block == b] = self.blocks[b][index[block == b] % self.size]
        return out

    def csr(self, rows=ALL):
        return sp.csr_array(self.dense(rows))
