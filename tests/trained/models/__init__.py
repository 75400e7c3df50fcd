"""
Small models that are trained on made-up tasks of every kind, each with inputs and labels that it
was not trained on.

Those in ``design`` were used to find the rule that tells safe candidates.
"""
