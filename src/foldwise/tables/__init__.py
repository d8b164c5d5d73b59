"""Tables in files: a header line, feature columns, one target column; CSV, TSV, Parquet and svmlight, plain or gzip.

The command line reads its data here, so that pandas is not needed to fit a model. Cells are numbers, categories or
missing. A column is numeric when all its cells are numbers, and categorical when none is or when the caller says so;
one that holds both is refused with the line of the first cell that does not fit, never guessed.
"""

from foldwise.tables.codes import MOST_CATEGORIES, Table, TableError
from foldwise.tables.files import FORMATS, format_of, named_format, read_table
from foldwise.tables.text import write_table

__all__ = [
    "FORMATS",
    "MOST_CATEGORIES",
    "Table",
    "TableError",
    "format_of",
    "named_format",
    "read_table",
    "write_table",
]
