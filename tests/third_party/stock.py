"""A loss that is straight but for corners: what a wrong order costs."""

from dataclasses import dataclass

from foldwise.losses import Polyhedral


@dataclass(frozen=True)
class Stock(Polyhedral):
    """What an order of z costs when y is asked for: short sales, keeping what is left, and waste above the room."""

    short: float = 3.0
    keep: float = 0.5
    waste: float = 2.0
    room: float = 0.5

    def pieces(self, y):
        return [
            (-self.short, self.short * y),
            (self.keep, -self.keep * y),
            (self.waste, -self.waste * y - (self.waste - self.keep) * self.room),
        ]
