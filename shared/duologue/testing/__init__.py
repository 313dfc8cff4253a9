"""What tests, drills and benchmarks share: the parrot's reference function and signals to feed it.

Nothing of the product imports this package.
"""
