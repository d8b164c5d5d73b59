"""A master's thesis on bi-level support vector machines with smoothed hinge losses."""
