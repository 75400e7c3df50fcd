"""stub for now"""
def verdicts(document, origins, marks): return ()
def described(v): return []
